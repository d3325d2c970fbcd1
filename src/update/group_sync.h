// Makes changes durable: callers that wait at the same time share one sync of the store.
//
// Thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "tier/durable_tier.h"

namespace hps {

class GroupSync {
 public:
  explicit GroupSync(DurableStore& store) : store_(store) {}  // borrowed

  // Returns when everything that was written before the call is on the disk. Costs at most the rest
  // of a running sync and one more. Errors: those of DurableStore::Sync.
  absl::Status Sync();

 private:
  DurableStore& store_;
  Mutex mutex_;
  CondVar ended_;
  bool running_ HPS_GUARDED_BY(mutex_) = false;
  // Syncs are numbered from 1. A caller needs one that begins after its call.
  uint64_t begun_ HPS_GUARDED_BY(mutex_) = 0;
  uint64_t done_ HPS_GUARDED_BY(mutex_) = 0;
  absl::Status last_ HPS_GUARDED_BY(mutex_);  // of sync number done_
};

}  // namespace hps
