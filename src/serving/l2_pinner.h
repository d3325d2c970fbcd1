// Pins level 2's tables so that the devices read missing rows there by themselves, as far as the
// budget l2.pinned_bytes_max lasts.
//
// A table asks to be pinned when it is half full, so tables that fill first are pinned first. A
// table for which the budget has no room waits until another table returns its part. A waiting
// table that will be freed soon is passed over. Memory is pinned in parts, in the background:
// lookups on the devices wait for some milliseconds per part, and the end of a table that is being
// pinned waits for one part.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "tier/device_cache.h"
#include "tier/host_memory_pinner.h"

namespace hps {

class L2Pinner final : public HostMemoryPinner {
 public:
  // All are borrowed; the executor runs the pinning. REQUIRES: at least one cache.
  L2Pinner(std::vector<DeviceCache*> caches, uint64_t bytes_max, Executor& executor);
  L2Pinner(const L2Pinner&) = delete;
  L2Pinner& operator=(const L2Pinner&) = delete;
  // REQUIRES: no region is left.
  ~L2Pinner() override;

  void Pin(PinnedRegion& region) override;
  bool Unpin(PinnedRegion& region) override;

  // What is pinned at a time.
  static constexpr size_t kPartBytes = size_t{64} << 20;

 private:
  // False: the executor's queue is full, and the caller calls PinWaiting, without the mutex.
  bool Post() HPS_REQUIRES(mutex_);
  void PinWaiting();
  // The first region that the budget has room for, whose bytes are taken; null = none.
  PinnedRegion* TakeWaiting() HPS_REQUIRES(mutex_);
  // Errors: those of DeviceCache::PinHostMemory, CANCELLED (not wanted any more). Nothing of the
  // region is pinned then.
  absl::Status PinParts(const PinnedRegion& region);
  void UnpinParts(std::span<std::byte> memory);
  bool DevicesAnswer();

  const std::vector<DeviceCache*> caches_;
  const uint64_t bytes_max_;
  Executor& executor_;
  FunctionTask task_{[this] { PinWaiting(); }};
  Mutex mutex_;
  CondVar pinning_ended_;
  uint64_t bytes_left_ HPS_GUARDED_BY(mutex_);
  std::vector<PinnedRegion*> waiting_ HPS_GUARDED_BY(mutex_);
  const PinnedRegion* pinning_ HPS_GUARDED_BY(mutex_) = nullptr;
  bool posted_ HPS_GUARDED_BY(mutex_) = false;
  // Each is said once: a table that is not pinned is served as well, only slower.
  bool said_full_ HPS_GUARDED_BY(mutex_) = false;
  bool said_refused_ HPS_GUARDED_BY(mutex_) = false;
};

}  // namespace hps
