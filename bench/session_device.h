// What a lookup through a device cache costs over its parts: the probe alone, and the copy of the
// missing rows alone.
#pragma once

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/device.h"
#include "bench/scenario.h"
#include "tier/device_cache.h"

namespace hps::bench {

struct SessionOnDeviceSizes {
  size_t row_count = 0;
  std::vector<size_t> batches;  // keys of a call
  size_t runs = 0;
};

// Device memory that a cache needs for a table of `row_count` rows of the scenario.
uint64_t SessionOnDeviceBytes(const DeviceCache& cache, size_t row_count);

// For each batch a call whose keys all hit, and one of whose keys a tenth is missing and comes from
// level 2, which is pinned, so that the device may read it by itself, or is not; keys and outputs
// on the device. Every byte of every row is checked in calls of their own. Errors: INTERNAL (a
// wrong row or status), those of the cache and the device.
absl::StatusOr<std::vector<Result>> MeasureSessionOnDevice(DeviceCache& cache, Device& device,
                                                           const SessionOnDeviceSizes& sizes);

// The same calls by one session on each of two devices at once, which share one level 2: the keys
// per second of both, over those of the first one alone. Checks and errors as above.
absl::StatusOr<std::vector<Result>> MeasureSessionsOnTwo(std::array<DeviceCache*, 2> caches,
                                                         std::array<Device*, 2> devices,
                                                         const SessionOnDeviceSizes& sizes);

// On the GPU that the options name; on it with a part of level 2 on Redis behind the memory, beside
// memory alone; and on it and the next one where there is one. Errors:
// UNIMPLEMENTED, UNAVAILABLE: a sentence where there is none.
absl::StatusOr<std::vector<Result>> RunSessionOnDevice(const Options& options);

}  // namespace hps::bench
