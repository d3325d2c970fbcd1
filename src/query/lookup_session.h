// The look-up session: query -> L1 -> de-duplication -> L2 -> L3 -> reply -> promotion.
//
// See include/hps/lookup_session.h for what callers get. The .cc file is the read path, one step a
// line; the steps' machinery is in level_fetch.h (asking a level in jobs), cache_lookup.h (calls
// through a device cache) and miss_list.h (de-duplication).
//
// For one thread at a time. Allocates when it is made, and where a device cache's call is larger
// than any before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/epoch.h"
#include "hps/lookup_session.h"
#include "query/cache_lookup.h"
#include "query/fetch_service.h"
#include "query/level_fetch.h"
#include "query/miss_list.h"
#include "query/model_state.h"
#include "query/query_work.h"
#include "query/request_check.h"

namespace hps {

// What all sessions of a factory share.
struct SessionShared {
  FetchService& fetch;
  Duration timeout{};  // where a request names none
  std::atomic<uint64_t>& lookups;
  std::atomic<uint64_t>& deadlines_exceeded;
};

class LevelSession final : public LookupSession {
 public:
  struct Parts {
    ModelState& model;
    SessionShared shared;
    SessionOptions options;
    EpochDomain::Reader reader;
    DeviceCache* cache = nullptr;   // null: the session has no L1
    size_t cache_index = kNoCache;  // of ServedTable::l1
    size_t number = 0;              // of the session, for its shard of the counters
  };

  // Errors: FAILED_PRECONDITION (nothing published yet), RESOURCE_EXHAUSTED (no memory).
  static absl::StatusOr<std::unique_ptr<LookupSession>> Create(Parts parts);

  absl::StatusOr<uint32_t> FindTable(std::string_view name) const override;
  std::vector<TableSpec> tables() const override;
  size_t output_row_bytes(uint32_t table) const override;
  absl::Status Lookup(const HostLookupRequest& request, LookupCounts* counts) override;
  absl::Status Lookup(const DeviceLookupRequest& request, LookupCounts* counts) override;

 private:
  explicit LevelSession(Parts parts);
  absl::Status ListTables();

  template <MemorySpace kSpace>
  absl::Status LookupIn(const LookupRequest<kSpace>& request, LookupCounts* counts);
  template <MemorySpace kSpace>
  void BeginCall(const LookupRequest<kSpace>& request, const ModelSnapshot& snapshot);
  template <MemorySpace kSpace>
  void BeginQuery(const TableQuery<kSpace>& query, const LookupRequest<kSpace>& request,
                  const ModelSnapshot& snapshot);
  void PassByCache();
  void RestartCall();

  void AnswerFromHostLevels(const ModelState::Guard& guard);
  absl::Status AnswerThroughCache(MemorySpace space, Stream stream, const ModelState::Guard& guard);
  bool FetchL2IntoOutput(QueryWork& work);
  bool FetchL2Converted(QueryWork& work);
  bool NoteL2Outcomes(QueryWork& work, const absl::StatusOr<FetchCounts>& counts);
  void CollectMisses(QueryWork& work, bool l2_has_answered);
  void ApplyMissPolicy(QueryWork::Top asked, const ModelState::Guard& guard);
  bool IsHitRateReached(const QueryWork& work);
  Deadline L2Deadline() const;
  void ServeDefaults();
  void Count(LookupCounts* counts);

  ModelState& model_;
  const SessionShared shared_;
  const SessionOptions options_;
  DeviceCache* const cache_;
  const size_t cache_index_;
  const size_t number_;
  EpochDomain::Reader reader_;
  std::vector<SessionTable> tables_;
  MissArena arena_;
  const std::unique_ptr<FetchOutcome[]> outcomes_;  // [keys_max]
  std::vector<std::byte> native_rows_;              // a chunk of rows that wait for conversion
  LevelFetch level_fetch_;
  std::unique_ptr<CacheLookup> cache_lookup_;  // null without a cache
  // Of the call that runs.
  std::vector<QueryWork> works_;
  Deadline deadline_ = kNoDeadline;
  bool may_wait_ = true;
};

}  // namespace hps
