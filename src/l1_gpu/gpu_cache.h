// The device cache of one GPU (level 1): hot rows of many tables in its memory.
//
// What it owns: the budget that its tables share, the one writer, and a pool of calls. See
// tier/device_cache.h for what it does and l1_gpu/kernels/kernels.h for how the device does it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "l1_gpu/last_wait.h"
#include "tier/device_cache.h"
#include "tier/device_cache_factory.h"

namespace hps {

// A call counts as lent until the device is done with it, also when it was returned before: where
// outputs lie on the device, `options.calls_max` is two for every thread that looks up.
// Errors: UNAVAILABLE (no driver, or no such device), INVALID_ARGUMENT (no calls, or no keys per
// call, or more than kKeysPerCallMax), RESOURCE_EXHAUSTED (memory; nothing stays allocated),
// INTERNAL.
// What dies waits for the device for `last_wait_max`; memory of one that hangs stays taken, with a
// line in the log.
absl::StatusOr<std::unique_ptr<DeviceCache>> MakeGpuCache(const DeviceCacheOptions& options,
                                                          Duration last_wait_max = LastWait::kMax);

}  // namespace hps
