// Fetches what an L2 that can't block has of a call's misses straight into the memory from which
// the device takes it, on several threads, and sends each part on its way while the next one is
// being fetched.
//
// The unit is a piece: rows of one query that lie next to each other. The caller and its crew take
// pieces; the caller sends what is ready when enough of it has come together. Few rows are fetched
// by the caller alone: see StagedFetchTuning for where that is faster.
//
// Belongs to one session; for one thread. Allocates when it is made.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "query/cache_lookup.h"
#include "query/crew.h"
#include "query/fetch_service.h"
#include "query/table_work.h"

namespace hps {

// The figures are of a Xeon server with DDR5 and an H200 on PCIe 5; none of them is critical.
struct StagedFetchTuning {
  // Bytes of one piece: 256 rows of 512 bytes take 17 us to gather, so that the threads of a crew
  // end at about the same time, and taking a piece (0.1 us) costs nothing.
  size_t piece_bytes = size_t{128} << 10;
  // Bytes that are sent at a time: 1 MiB takes PCIe 20 us, and telling the device to fetch it takes
  // the caller 5 to 10 us. The first part is sent as soon as one piece is there.
  size_t send_bytes = size_t{1} << 20;
  // Gathering that takes the caller less than this is not worth waking anybody: a thread that
  // sleeps takes 30 to 60 us to come.
  Duration alone_max = std::chrono::microseconds(60);
  // One more helper for each so much of it: below it the cost of the call (2 us for the caller)
  // and of the helper's start weigh more than what it does.
  Duration helper_share = std::chrono::microseconds(20);
};

class StagedFetch final : private Crew::Work {
 public:
  struct Options {
    FetchService* service = nullptr;
    CacheLookup* lookup = nullptr;
    size_t keys_max = 0;
    CrewLease crew;
    StagedFetchTuning tuning;
  };

  explicit StagedFetch(Options options);

  // While the device is busy with the probe: wakes as many helpers as the last call needed.
  void CallHelpers();

  // Asks L2 for the misses of all tables of which it can't block, and answers what it has: the rest
  // stays open. Tables that the call names twice are left to LevelFetch, which de-duplicates.
  void Fetch(std::span<TableWork> tables, std::span<QueryWork> queries);

  // Sends helpers away that were called for a call that has come to nothing.
  void DismissHelpers() { crew_->Close(); }

  // Has what Fetch found inserted into L1. Copies keys only: the rows are fetched again in the
  // background, because those that were sent are the device's.
  void Promote(std::span<TableWork> tables, const ModelState::Guard& guard);

 private:
  struct Piece {
    const TableWork* table = nullptr;
    const QueryWork* query = nullptr;
    size_t query_number = 0;
    size_t first = 0;  // index of its first key among the query's misses
    size_t count = 0;
    bool sent = false;
    std::atomic<bool> fetched{false};  // what follows, and the rows, are written before
    bool failed = false;
    size_t hit_count = 0;
    size_t absent_count = 0;
  };
  static constexpr size_t kPiecesMax = 1024;  // and one for each query

  static bool Wanted(const TableWork& table);
  void MakePieces(std::span<TableWork> tables, std::span<QueryWork> queries);
  size_t HelpersWanted() const;
  void DoPiece(size_t piece) override;
  void SendReady(size_t bytes_min);
  size_t ReadyBytes() const;
  void AddReady(const Piece& piece);
  void NoteOutcomes(std::span<TableWork> tables);
  void PromoteTable(const TableWork& table, size_t hit_count, const ModelState::Guard& guard);

  FetchService& service_;
  CacheLookup& lookup_;
  const StagedFetchTuning tuning_;
  const CrewLease crew_;
  const std::unique_ptr<FetchOutcome[]> outcomes_;  // [keys_max], by the numbers of the misses
  const std::unique_ptr<Piece[]> pieces_;
  const QueryWork* queries_ = nullptr;  // of the call
  size_t piece_count_ = 0;
  size_t first_unsent_ = 0;
  size_t unsent_count_ = 0;
  uint64_t bytes_ = 0;  // of all pieces
  uint64_t row_count_ = 0;
  size_t last_helpers_ = 0;
  bool sent_any_ = false;
  std::vector<DeviceRowPiece> ready_;
};

}  // namespace hps
