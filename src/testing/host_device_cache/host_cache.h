// A device cache without a device: level 1 in host memory, behind the same interface as the GPU's.
//
// It gives the same answers as the GPU's cache, so that the code above level 1 can be tested, and
// the kernels compared, without a GPU. It is written to be obviously correct, not fast: without a
// GPU a lookup is served from level 2. The "device" memory of its queries is host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tier/device_cache.h"

namespace hps {

struct HostCacheOptions {
  int device = 0;          // the result of device()
  uint64_t bytes_max = 0;  // for all tables, metadata included; the buffers of calls come on top
  size_t calls_max = 16;   // concurrent lookups
  size_t call_keys_max = size_t{64} << 10;      // of one lookup
  size_t call_staging_bytes = size_t{1} << 20;  // rows that one lookup can stage
};

// Errors: RESOURCE_EXHAUSTED if the calls' memory can't be allocated. REQUIRES: at least one call,
// of 1 to kKeysPerCallMax keys.
absl::StatusOr<std::unique_ptr<DeviceCache>> MakeHostCache(const HostCacheOptions& options);

}  // namespace hps
