// The caches of a process's devices: those of l1.devices, or with "auto" those that are present and
// have enough memory; the others are left out with a warning.
//
// Nothing changes after Create but whether a device answers (serving/device_health.h). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/config.h"
#include "hps/statistics.h"
#include "serving/device_health.h"
#include "tier/device_cache_factory.h"

namespace hps {

class DeviceCaches {
 public:
  struct Options {
    bool is_server = false;       // affects the default of l1.calls_max
    bool is_auto_budget = false;  // l1.bytes_max is what ChooseBudgets found for "auto"
  };
  // `config` is borrowed, `factory` only during the call. Listed devices must be usable. If devices
  // are left out, an automatic budget is chosen again for the others. `on_answer`: DeviceHealth's,
  // of each device. Errors: those of DeviceCacheFactory::Make, for a listed device.
  static absl::StatusOr<std::unique_ptr<DeviceCaches>> Create(
      const Config& config, const Options& options, const DeviceCacheFactory& factory,
      const std::function<void()>& on_answer);

  // The caches have numbers from 0, which LiveTable uses, too.
  size_t size() const { return caches_.size(); }
  DeviceCache& cache(size_t number) const { return *caches_[number]; }
  DeviceHealth& health(size_t number) const { return *healths_[number]; }

  // In the order of their numbers.
  std::vector<DeviceCache*> caches() const;
  std::vector<DeviceHealth*> healths() const;

  // The memory of all tables on each device.
  uint64_t bytes_max() const { return bytes_max_; }

  // Memory of the device that was free when the cache was made, without that for tables.
  // UINT64_MAX: the device does not say, or has no cache.
  uint64_t BytesLeftOn(int device) const;

  // The devices with a cache, and those that "auto" found and left out.
  std::vector<DeviceState> States() const;

  // Replaces cache numbers in the statistics by device numbers.
  void NameDevices(std::span<TableStatistics> tables) const;

  // OK if sessions may use the device: -1, or one with a cache. Errors: UNIMPLEMENTED (a build
  // without GPU support), UNAVAILABLE, with the reason.
  absl::Status CheckDevice(int device) const;

 private:
  DeviceCaches(const Config& config, const Options& options)
      : config_(config), options_(options), bytes_max_(config.l1.bytes_max) {}
  absl::Status Open(const DeviceCacheFactory& factory, const std::function<void()>& on_answer);
  absl::Status MakeCaches(const DeviceCacheFactory& factory, std::span<const int> devices);
  // Where memory is short it uses the next of `calls_max`, which has at least one number.
  absl::Status MakeCache(const DeviceCacheFactory& factory, int device,
                         std::span<const size_t> calls_max, size_t device_count);

  const Config& config_;
  const Options options_;
  uint64_t bytes_max_;
  std::map<int, uint64_t> bytes_left_{};  // by device
  std::vector<std::unique_ptr<DeviceCache>> caches_;
  std::vector<std::unique_ptr<DeviceHealth>> healths_;  // of caches_
  absl::Status no_devices_;                             // why there are none
  std::map<int, absl::Status> skipped_{};               // devices without a cache, and why
};

}  // namespace hps
