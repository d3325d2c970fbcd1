// The devices of a machine, and the factory of device caches: all that a build knows about GPUs.
//
// A build has one factory, chosen by the build system: that of src/l1_gpu or, without CUDA, that of
// src/absent, which always returns UNIMPLEMENTED. The store takes the factory as an argument, so
// that tests can pass one that makes caches in host memory.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tier/device_cache.h"

namespace hps {

struct DeviceCacheOptions {
  int device = 0;
  uint64_t bytes_max =
      0;  // device memory for all tables, metadata included; the buffers of calls come on top
  size_t calls_max = 16;                   // concurrent lookups
  size_t call_keys_max = size_t{1} << 20;  // of one lookup
  size_t call_staging_bytes = size_t{8}
                              << 20;  // rows of misses that one lookup can stage, at first
  // By how much that may grow where lookups need more, over all of them; in pinned memory of the
  // host and again on the device.
  uint64_t staging_growth_bytes_max = 0;
};

struct DeviceMemory {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

class DeviceCacheFactory {
 public:
  virtual ~DeviceCacheFactory() = default;

  // UNIMPLEMENTED, with an explanation, in a build without GPUs. Does not call the driver.
  virtual absl::Status Support() const = 0;

  // The device numbers of this machine, ascending; never empty. Errors: as Support; UNAVAILABLE (no
  // driver, a driver that is too old, or no device; in the driver's own words).
  virtual absl::StatusOr<std::vector<int>> Devices() const = 0;

  // The vendor's name of the device: "NVIDIA H200". Errors: as Devices; UNAVAILABLE (no such
  // device).
  virtual absl::StatusOr<std::string> DeviceName(int device) const = 0;

  // The device's memory now. Errors: as Devices; UNAVAILABLE (no such device, or it fails).
  virtual absl::StatusOr<DeviceMemory> Memory(int device) const = 0;

  // Errors: as Devices; UNAVAILABLE (no such device), INVALID_ARGUMENT (options),
  // RESOURCE_EXHAUSTED (too little device or host memory; nothing stays allocated).
  virtual absl::StatusOr<std::unique_ptr<DeviceCache>> Make(
      const DeviceCacheOptions& options) const = 0;
};

// The factory linked into this build.
const DeviceCacheFactory& BuiltInDeviceCacheFactory();

}  // namespace hps
