// What all sessions of a factory share. The factory owns it; it outlives the sessions.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/fork_join_team.h"
#include "query/fetch/fetch_service.h"
#include "query/fetch/staged_fetch_tuning.h"
#include "serving/sharded_counter.h"

namespace hps {

// What a session keeps alive: the owner of all that it borrows. No lookup touches it.
using SessionResources = std::shared_ptr<void>;

struct SessionShared {
  const std::unique_ptr<FetchService> fetch;
  ForkJoinPool teams;
  const Duration timeout{};  // where a request names none
  const StagedFetchTuning tuning;
  ShardedCounter lookups;
  std::atomic<uint64_t> deadlines_exceeded{0};
};

}  // namespace hps
