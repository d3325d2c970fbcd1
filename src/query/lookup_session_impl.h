// The lookup session: query -> L1 -> de-duplication -> L2 -> L3 -> reply -> promotion.
//
// include/hps/lookup_session.h has the contract. A call is validated, pins a snapshot, and is
// answered piece by piece:
//   call_pieces.h     cutting a large call,
//   piece_lookup.h    what a piece asks; the next one may be under way already,
//   call_deadlines.h  how long each level may be waited for,
//   cache_path.h      the steps of a piece through a device cache,
//   host_levels.h     the steps of a piece that asks the levels on the host.
//
// For one thread at a time. Allocates when it is made, and when a call through a device cache is
// larger than any before.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/epoch.h"
#include "hps/lookup_session.h"
#include "query/cache_path.h"
#include "query/call_deadlines.h"
#include "query/host_levels.h"
#include "query/piece_lookup.h"
#include "query/request_check.h"
#include "query/session_shared.h"
#include "query/table_lookup.h"
#include "serving/device_health.h"
#include "serving/live_model.h"

namespace hps {

class LookupSessionImpl final : public LookupSession {
 public:
  // What a session is made of, and keeps as it is.
  struct Parts {
    SessionResources resources;  // declared first: kept until all else is destroyed
    LiveModel& model;
    SnapshotPin pin;  // empty: the tables of the moment
    SessionShared& shared;
    SessionOptions options;
    EpochDomain::Reader reader;
    DeviceCache* cache = nullptr;    // null: the session has no L1
    size_t cache_index = kNoCache;   // of LiveTable::l1
    DeviceHealth* health = nullptr;  // of the cache's device
    size_t number = 0;               // of the session, for its shard of the counters
  };

  // Errors: FAILED_PRECONDITION (nothing published yet), UNAVAILABLE (unloaded),
  // RESOURCE_EXHAUSTED (no memory).
  static absl::StatusOr<std::unique_ptr<LookupSession>> Create(Parts parts);

  absl::StatusOr<TableIndex> FindTable(std::string_view name) const override;
  std::span<const TableSpec> tables() const override { return specs_; }
  size_t output_row_bytes(TableIndex table) const override;
  absl::Status Lookup(const HostLookupRequest& request, LookupCounts* counts) override;
  absl::Status Lookup(const DeviceLookupRequest& request, LookupCounts* counts) override;

 private:
  explicit LookupSessionImpl(Parts parts);
  absl::Status ListTables();
  void MakeSteps();

  template <MemorySpace kSpace>
  absl::Status LookupIn(const LookupRequest<kSpace>& request, LookupCounts* counts);
  template <MemorySpace kSpace>
  absl::Status LookupPieces(const LookupRequest<kSpace>& request, const LiveModel::Guard& guard,
                            LookupCounts& sum);
  template <MemorySpace kSpace>
  void BeginPiece(PieceLookup& piece, std::span<const TableQuery<kSpace>> queries,
                  const LookupRequest<kSpace>& request, const ModelSnapshot& snapshot);
  void BeginTable(TableLookup& table, TableIndex index, std::optional<double> threshold,
                  const ModelSnapshot& snapshot);
  void Count(LookupCounts& sum);

  Parts parts_;                               // declared first, for its resources
  std::vector<TableSpec> specs_;              // by TableIndex
  std::vector<SessionTable> session_tables_;  // by TableIndex
  CallDeadlines deadlines_;
  std::unique_ptr<HostLevels> host_;
  std::unique_ptr<PieceLookup> piece_;  // of the call that runs
  // Null without a cache.
  std::unique_ptr<PieceLookup> next_piece_;
  std::unique_ptr<CachePath> cache_path_;
};

}  // namespace hps
