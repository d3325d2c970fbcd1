// Fetches a call's device misses from the first part of an L2, if it can't block, on several
// threads, straight into the staging memory from which the device takes the rows. It begins with
// the first misses that the device reports: some rows travel while others are fetched and while the
// probe still runs.
//
// The unit is a piece: rows of one query that lie next to each other. The caller and its fork-join
// team take pieces. The caller has finished pieces copied to the device, and sends the answers when
// all misses are known. Small calls are fetched by the caller alone (StagedFetchTuning).
//
// Belongs to one session; for one thread. Allocates when it is made.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/fork_join_team.h"
#include "query/cache_lookup.h"
#include "query/fetch/fetch_service.h"
#include "query/table_lookup.h"

namespace hps {

// The figures are of a Xeon server with DDR5 and an H200 on PCIe 5; none of them is critical.
struct StagedFetchTuning {
  // Bytes of one piece. 64 rows of 512 bytes take a thread 3 us to gather, so the first pieces are
  // there soon, and the threads of a team end at about the same time. Smaller pieces take longer
  // per row. Of the pieces that are fetched ahead, only the first ones (kFirstPieces), which are to
  // be on their way at once, have this size; later ones have twice as much.
  size_t piece_bytes = size_t{32} << 10;
  // The caller starts a copy when as many bytes are fetched as it has copied before, but at least
  // the first number, and it waits for no more than the second. To start a copy takes the caller 3
  // us, in which PCIe moves 128 KiB. Fewer rows, and rows that are fetched only after the probe,
  // are not copied: the device reads each where it lies, which takes PCIe a fifth longer.
  size_t copy_ahead_bytes_min = size_t{128} << 10;
  size_t bring_bytes_max = size_t{2} << 20;
  // Bytes that are sent at a time after that: 1 MiB takes PCIe 20 us, and telling the device to
  // fetch it takes the caller 5 us.
  size_t send_bytes = size_t{1} << 20;
  // Gathering that takes the caller less than this is not worth waking a helper: a thread that
  // sleeps takes 30 to 60 us to come.
  Duration alone_max = std::chrono::microseconds(60);
  // One more helper is called for each such share of the gathering. With a smaller share, calling
  // the helper (2 us for the caller) and its start would cost more than the helper saves.
  Duration helper_share = std::chrono::microseconds(20);
};

class StagedFetch final : private ForkJoinTeam::Work {
 public:
  struct Options {
    FetchService* service = nullptr;
    CacheLookup* lookup = nullptr;
    size_t keys_max = 0;
    ForkJoinLease team;
    StagedFetchTuning tuning;
  };

  explicit StagedFetch(Options options);

  // The lookup whose misses are fetched from now on. Between calls, or pieces of a call.
  void set_lookup(CacheLookup& lookup) { lookup_ = &lookup; }

  // Has as many helpers woken as the last call needed whose misses the host fetched.
  void CallHelpers();

  // Call it after CacheLookup::Begin. Until the probe is done or the deadline has passed, asks L2
  // for the misses as they become known. Only for tables whose hit-rate threshold makes the call
  // wait for all rows.
  void FetchAhead(std::span<TableLookup> tables, std::span<QueryLookup> queries, Deadline deadline);

  // Asks the first part of L2 for the misses of all tables where it can't block, and answers those
  // that it has. The other misses stay open. Tables that the call names twice are left to
  // LevelFetch, which de-duplicates. Each time that it sends rows, it waits for the device at most
  // `send_wait_max`.
  void Fetch(std::span<TableLookup> tables, std::span<QueryLookup> queries, Duration send_wait_max);

  // Sends helpers away that were called for a call that has come to nothing.
  void DismissHelpers() {
    team_->Close();
    begun_ = false;  // the next call may read level 2 by the device, and then fetches nothing ahead
  }

  // Has the rows that Fetch, or the device by itself, found in L2 inserted into L1. Passes on their
  // keys only. The rows are fetched again in the background, because the rows that were sent lie in
  // memory of the device's call.
  void Promote(std::span<TableLookup> tables, const LiveModel::Guard& guard);

 private:
  struct Piece {
    const TableLookup* table = nullptr;
    const QueryLookup* query = nullptr;
    size_t query_number = 0;
    std::span<const Key> keys;
    size_t first = 0;  // index of its first key among the query's misses
    HostRows rows;
    bool on_device = false;
    std::atomic<bool> fetched{false};  // set after the rows and the members below
    absl::StatusCode code = absl::StatusCode::kOk;
    size_t hit_count = 0;
    size_t absent_count = 0;

    size_t bytes() const { return keys.size() * rows.row_bytes; }
  };
  // A query whose misses are fetched while the device probes.
  struct Ahead {
    const TableLookup* table = nullptr;
    QueryLookup* query = nullptr;
    size_t number = 0;
    size_t piece_keys = 0;
    bool is_full = false;  // there is no room for more
  };
  // Pieces of one table.
  struct TableSum {
    size_t piece_count = 0;
    size_t hit_count = 0;
    size_t absent_count = 0;
    absl::StatusCode code = absl::StatusCode::kOk;
  };
  // All pieces up to one of them.
  struct Progress {
    size_t end = 0;
    uint64_t bytes = 0;
  };
  static constexpr size_t kPiecesMax = 1024;      // fetched ahead; later as many and one per query
  static constexpr size_t kFirstPieces = 16;      // of tuning_.piece_bytes
  static constexpr size_t kAheadQueriesMax = 64;  // a call with more fetches nothing ahead

  static bool Wanted(const TableLookup& table);
  void Begin(std::span<TableLookup> tables, std::span<QueryLookup> queries);
  bool AddKnownMisses();
  bool AddKnownMisses(Ahead& ahead, const DeviceMissesSoFar& misses);
  void AddRest(std::span<TableLookup> tables);
  Piece& AddPiece(const TableLookup& table, size_t first, std::span<const Key> keys);
  void AnnouncePieces();
  void CallHelpersFor(size_t helper_count);
  size_t HelpersWanted() const;
  void RunPiece(size_t piece) override;
  void NoteFetched();
  void CopyFetchedAhead();
  void SendFetched(size_t bytes_min);
  void Send(size_t first_piece, size_t end_piece);
  void AddReady(const Piece& piece);
  void NoteOutcomes(std::span<TableLookup> tables);
  void NoteDirectHits(TableLookup& table, TableSum& sum);
  void PromoteTable(const TableLookup& table, size_t hit_count, const LiveModel::Guard& guard);

  FetchService& service_;
  CacheLookup* lookup_;
  const StagedFetchTuning tuning_;
  Duration send_wait_max_{};
  const ForkJoinLease team_;
  const std::unique_ptr<FetchOutcome[]> outcomes_;  // [keys_max], by the numbers of the misses
  const std::unique_ptr<Piece[]> pieces_;
  std::vector<Ahead> ahead_;
  std::vector<TableSum> sums_;      // [tables]
  std::span<QueryLookup> queries_;  // of the call
  size_t piece_count_ = 0;
  uint64_t bytes_ = 0;  // of all pieces
  uint64_t row_count_ = 0;
  Progress fetched_;
  Progress copied_ahead_;  // or without rows to copy
  Progress ahead_end_;     // where copying ahead ends; all pieces before are in staging
  Progress sent_;          // or copied ahead: those are sent last
  bool begun_ = false;     // FetchAhead has begun the call that Fetch goes on with
  size_t helpers_called_ = 0;
  size_t last_helpers_ = 0;
  std::vector<DeviceRowPiece> ready_;
};

}  // namespace hps
