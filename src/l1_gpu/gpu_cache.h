// The device cache of one GPU (level 1): hot rows of many tables in its memory.
//
// It owns the budget that its tables share, one writer, and a pool of calls. tier/device_cache.h is
// its contract; l1_gpu/kernels/kernels.h describes the work on the device.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "l1_gpu/hang_detector.h"
#include "tier/device_cache.h"
#include "tier/device_cache_factory.h"

namespace hps {

// A call counts as leased until the device has finished with it, even if it was returned before.
// With outputs on the device, `options.calls_max` is therefore two per thread that looks up.
// Errors: UNAVAILABLE (no driver, or no such device), RESOURCE_EXHAUSTED (memory; nothing stays
// allocated), INTERNAL. Destructors wait for the device for at most `hang_timeout`; if it hangs,
// its memory is leaked and the log says so. REQUIRES: at least one call, of 1 to kKeysPerCallMax
// keys.
absl::StatusOr<std::unique_ptr<DeviceCache>> MakeGpuCache(
    const DeviceCacheOptions& options, Duration hang_timeout = HangDetector::kMax);

}  // namespace hps
