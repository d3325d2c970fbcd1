// Fetches a call's device misses from the first part of an L2, if it can't block, on several
// threads, straight into the staging memory from which the device takes the rows. It begins with
// the first misses that the device reports: some rows travel while others are fetched and while the
// probe still runs.
//
// The unit is a piece (staged_pieces.h). The caller and its fork-join team (fetch_helpers.h) take
// pieces. The caller has finished pieces copied to the device, and sends the answers when all
// misses are known (staged_sender.h). MissRoute says for which tables.
//
// Belongs to one session; for one thread. Allocates when it is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/fork_join_team.h"
#include "query/cache_lookup.h"
#include "query/fetch/fetch_helpers.h"
#include "query/fetch/fetch_service.h"
#include "query/fetch/staged_fetch_tuning.h"
#include "query/fetch/staged_pieces.h"
#include "query/fetch/staged_sender.h"
#include "query/table_lookup.h"

namespace hps {

class StagedFetch {
 public:
  // For calls of at most `keys_max` keys.
  StagedFetch(FetchService& service, size_t keys_max, ForkJoinLease team,
              const StagedFetchTuning& tuning);

  // Begins a call, or a piece of it, whose misses `lookup` has or will have.
  void Begin(CacheLookup& lookup, std::span<TableLookup> tables);

  // Call it after CacheLookup::Begin, unless the device reads level 2. Has as many helpers woken as
  // the last call needed whose misses the host fetched. Until the probe is done or the deadline has
  // passed, asks L2 for the misses as they become known.
  void FetchAhead(std::span<TableLookup> tables, Deadline deadline);

  // Asks the first part of L2 for the misses of the tables that are staged, and answers those that
  // it has. The other misses stay open. Each time that it sends rows, it waits for the device at
  // most `send_wait_max`.
  void Fetch(std::span<TableLookup> tables, Duration send_wait_max);

  // Sends helpers away that were called for a call that has come to nothing.
  void DismissHelpers() { helpers_.Close(); }

  // Has the rows that Fetch, or the device by itself, found in L2 inserted into L1. Passes on their
  // keys only. The rows are fetched again in the background, because the rows that were sent lie in
  // memory of the device's call.
  void Promote(std::span<TableLookup> tables, const LiveModel::Guard& guard);

 private:
  // A table whose misses are fetched while the device probes.
  struct Ahead {
    const TableLookup* table = nullptr;
    size_t query_number = 0;
    size_t piece_keys = 0;
    bool is_full = false;  // there is no room for more
  };
  // What came of all pieces of one table.
  struct TableSum {
    size_t piece_count = 0;
    size_t hit_count = 0;
    size_t absent_count = 0;
    absl::StatusCode code = absl::StatusCode::kOk;
  };
  static constexpr size_t kFirstPieces = 16;     // of tuning_.piece_bytes
  static constexpr size_t kAheadTablesMax = 64;  // a call of more fetches nothing ahead

  bool AddKnownMisses();
  void AddRest(std::span<TableLookup> tables);
  void TakeAnswers(TableLookup& table, TableSum& sum);
  void PromoteTable(const TableLookup& table, size_t hit_count, const LiveModel::Guard& guard);

  FetchService& service_;
  const StagedFetchTuning tuning_;
  CacheLookup* lookup_ = nullptr;
  FetchHelpers helpers_;
  StagedPieces pieces_;
  StagedSender sender_;
  std::vector<Ahead> ahead_;
  bool fetches_ahead_ = false;  // FetchAhead was called for this call
  std::vector<TableSum> sums_;  // [tables]
};

}  // namespace hps
