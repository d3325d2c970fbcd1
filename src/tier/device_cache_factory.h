// Which devices a machine has, and how a cache is made on one: what a build knows about GPUs.
//
// A build has one factory, and the build system chooses whose: src/l1_gpu's or, without CUDA,
// src/no_gpu's, which answers with a sentence. The composition is given a factory, so that tests
// can give it one that makes caches in host memory.
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
  uint64_t bytes_max = 0;  // device memory over all tables, metadata included; calls come on top
  size_t calls_max = 16;   // lookups at a time
  size_t call_keys_max = size_t{1} << 20;       // keys of one lookup
  size_t call_staging_bytes = size_t{8} << 20;  // rows of misses that one lookup may stage
};

class DeviceCacheFactory {
 public:
  virtual ~DeviceCacheFactory() = default;

  // UNIMPLEMENTED, with a sentence, in a build without GPUs. Does not ask the driver.
  virtual absl::Status Support() const = 0;

  // The numbers of the devices that this machine has, ascending; never empty.
  // Errors: as Support; UNAVAILABLE (no driver, one that is too old, or no device, in the driver's
  // own words).
  virtual absl::StatusOr<std::vector<int>> Devices() const = 0;

  // What its maker calls it: "NVIDIA H200". Errors: as Devices; UNAVAILABLE (no such device).
  virtual absl::StatusOr<std::string> DeviceName(int device) const = 0;

  // Errors: as Devices; UNAVAILABLE (there is no such device), INVALID_ARGUMENT (options),
  // RESOURCE_EXHAUSTED (the device or the host lacks the memory; nothing stays allocated).
  virtual absl::StatusOr<std::unique_ptr<DeviceCache>> Make(
      const DeviceCacheOptions& options) const = 0;
};

// The factory that this build was linked with.
const DeviceCacheFactory& BuiltInDeviceCacheFactory();

}  // namespace hps
