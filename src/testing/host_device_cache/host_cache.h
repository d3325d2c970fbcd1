// The device cache without a device: level 1 in host memory, behind the interface of the GPU's.
//
// It answers what the GPU's cache may answer, so that everything above level 1 can be tested, and
// the kernels compared, where there is no GPU. It is written to be obviously right, not fast:
// without a GPU a lookup is served from level 2. "Device" memory of its queries is host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tier/device_cache.h"

namespace hps {

struct HostCacheOptions {
  int device = 0;                           // the number that device() gives
  uint64_t bytes_max = 0;                   // over all tables, metadata included; calls come on top
  size_t calls_max = 16;                    // lookups at a time
  size_t call_keys_max = size_t{64} << 10;  // keys of one lookup
  size_t call_staging_bytes = size_t{1} << 20;  // rows that one lookup may stage
};

// Errors: INVALID_ARGUMENT (no calls, or no keys per call, or more than kKeysPerCallMax),
// RESOURCE_EXHAUSTED when the calls' memory can't be had.
absl::StatusOr<std::unique_ptr<DeviceCache>> MakeHostCache(const HostCacheOptions& options);

}  // namespace hps
