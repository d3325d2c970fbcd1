// The devices of a machine, with their caches in host memory (host_cache.h): what a test opens a
// store with that has a level 1.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "testing/host_device_cache/host_cache.h"
#include "tier/device_cache_factory.h"

namespace hps {

class HostDevices : public DeviceCacheFactory {
 public:
  absl::Status Support() const override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<int>> Devices() const override {
    if (present.empty()) return absl::UnavailableError("no driver");
    return present;
  }
  absl::StatusOr<std::string> DeviceName(int) const override { return "host"; }
  absl::StatusOr<DeviceMemory> Memory(int device) const override {
    const auto found = memory.find(device);
    if (found == memory.end()) return absl::UnavailableError("it does not say");
    return found->second;
  }
  absl::StatusOr<std::unique_ptr<DeviceCache>> Make(
      const DeviceCacheOptions& options) const override {
    if (std::find(present.begin(), present.end(), options.device) == present.end())
      return absl::UnavailableError("there is none");
    auto cache = MakeHostCache({.device = options.device,
                                .bytes_max = options.bytes_max,
                                .calls_max = options.calls_max,
                                .call_keys_max = options.call_keys_max,
                                .call_staging_bytes = options.call_staging_bytes});
    if (!cache.ok() || decorate == nullptr) return cache;
    return decorate(*std::move(cache));
  }

  std::vector<int> present = {0};
  std::map<int, DeviceMemory> memory{};  // a device that is not here does not say
  // What a cache becomes that was made; null: it stays as it is.
  std::function<std::unique_ptr<DeviceCache>(std::unique_ptr<DeviceCache>)> decorate{};
};

}  // namespace hps
