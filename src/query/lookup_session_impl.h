// The lookup session: query -> L1 -> de-duplication -> L2 -> L3 -> reply -> promotion.
//
// include/hps/lookup_session.h has the contract. The .cc file shows the read path, one step per
// line; the steps are in
//   call_pieces.h    cutting a large call,
//   piece_lookup.h   what a piece asks; the next one may be under way already,
//   cache_lookup.h   calls through a device cache,
//   direct_choice.h  whether the device reads level 2 by itself,
//   direct_fetch.h   an L2 that writes into the caller's rows itself,
//   staged_fetch.h   an L2 that writes into the memory from which the device takes the rows,
//   level_fetch.h    asking a level in jobs, until the deadline,
//   miss_list.h      de-duplication.
//
// For one thread at a time. Allocates when it is made, and when a call through a device cache is
// larger than any before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/epoch.h"
#include "base/fork_join_team.h"
#include "hps/lookup_session.h"
#include "query/cache_lookup.h"
#include "query/direct_choice.h"
#include "query/fetch/direct_fetch.h"
#include "query/fetch/fetch_service.h"
#include "query/fetch/level_fetch.h"
#include "query/fetch/staged_fetch.h"
#include "query/piece_lookup.h"
#include "query/request_check.h"
#include "query/table_lookup.h"
#include "serving/device_health.h"
#include "serving/live_model.h"
#include "serving/sharded_counter.h"

namespace hps {

// What all sessions of a factory share.
struct SessionShared {
  FetchService& fetch;
  ForkJoinPool& teams;
  Duration timeout{};  // where a request names none
  ShardedCounter& lookups;
  std::atomic<uint64_t>& deadlines_exceeded;
  StagedFetchTuning tuning;
};

class LookupSessionImpl final : public LookupSession {
 public:
  struct Parts {
    LiveModel& model;
    SnapshotPin pin;  // empty: the tables of the moment
    SessionShared shared;
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
  void MakeSteps(DeviceCache* cache);

  template <MemorySpace kSpace>
  absl::Status LookupIn(const LookupRequest<kSpace>& request, LookupCounts* counts);
  template <MemorySpace kSpace>
  absl::Status LookupPieces(const LookupRequest<kSpace>& request, const LiveModel::Guard& guard,
                            LookupCounts& sum);
  void AnswerFromHostLevels(const LiveModel::Guard& guard);
  // Where the outputs of a call through a device cache are, and when they are ready.
  struct DeviceCallPlace {
    MemorySpace space = MemorySpace::kHost;
    Stream stream{};
    // Whether work of the caller's may hold the call up.
    bool is_behind_callers_work = false;
  };
  // Begins the next piece, if there is one.
  using BeginNext = absl::FunctionRef<void()>;
  absl::Status AnswerPiece(const DeviceCallPlace& place, const LiveModel::Guard& guard,
                           BeginNext begin_next);
  absl::Status AnswerOnDevice(const DeviceCallPlace& place, const LiveModel::Guard& guard,
                              BeginNext begin_next);
  absl::Status AnswerThroughCache(const DeviceCallPlace& place, const LiveModel::Guard& guard,
                                  BeginNext begin_next);
  void AnswerWithoutCache(const LiveModel::Guard& guard);

  template <MemorySpace kSpace>
  void BeginCall(const LookupRequest<kSpace>& request);
  template <MemorySpace kSpace>
  static DeviceCallPlace PlaceOf(const LookupRequest<kSpace>& request);
  template <MemorySpace kSpace>
  void BeginPiece(PieceLookup& piece, std::span<const TableQuery<kSpace>> queries,
                  const LookupRequest<kSpace>& request, const ModelSnapshot& snapshot);
  template <MemorySpace kSpace>
  void BeginQuery(PieceLookup& piece, const TableQuery<kSpace>& query,
                  const LookupRequest<kSpace>& request, const ModelSnapshot& snapshot);
  void BeginTable(PieceLookup& piece, TableLookup& table, TableIndex index,
                  std::optional<double> threshold, const ModelSnapshot& snapshot);
  absl::Status Probe(const DeviceCallPlace& place);
  void NoteProbe();
  void ProbeNextPiece(const DeviceCallPlace& place);
  void TakeNextPiece();
  void FetchDirectly(TableLookup& table);
  void ApplyMissPolicy(TableLookup::Top asked, const LiveModel::Guard& guard);
  bool IsHitRateReached(const TableLookup& table);
  bool FetchFromL2(const LiveModel::Guard& guard);
  void ListAskedParts(TableLookup& table) const;
  Deadline L2Deadline() const;
  Deadline DeviceDeadline(MemorySpace space) const;
  void ServeDefaults();
  void EndCall(const DeviceCallPlace& place, const LiveModel::Guard& guard);
  void BypassCache();
  void RestartCall();
  void Count(LookupCounts& sum);

  LiveModel& model_;
  const SnapshotPin pin_;
  const SessionShared shared_;
  const SessionOptions options_;
  const size_t cache_index_;
  DeviceHealth* const health_;
  const size_t number_;
  EpochDomain::Reader reader_;
  std::vector<TableSpec> specs_;              // by TableIndex
  std::vector<SessionTable> session_tables_;  // by TableIndex
  LevelFetch level_fetch_;
  std::unique_ptr<DirectFetch> direct_fetch_;
  std::unique_ptr<PieceLookup> piece_;  // of the call that runs
  // Null without a cache.
  std::unique_ptr<PieceLookup> next_piece_;
  std::unique_ptr<StagedFetch> staged_fetch_;
  DirectChoice direct_choice_;
  Deadline deadline_ = kNoDeadline;
  Deadline half_time_ = kNoDeadline;
  Deadline outputs_deadline_ = kNoDeadline;  // where they are on the device
  bool may_wait_ = true;
};

}  // namespace hps
