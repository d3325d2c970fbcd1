#include "node/device_caches.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/server_threads.h"
#include "node/auto_budgets.h"

namespace hps {
namespace {

constexpr size_t kTrialRowBytes = 512;

// Concurrent lookups per device; a server divides its own evenly among the devices.
size_t CallsMax(const Config& config, bool is_server, size_t device_count) {
  if (config.l1.calls_max != 0) return config.l1.calls_max;
  if (!is_server || device_count == 0) return kDeviceCallsMin;
  const size_t lookups = (LookupSlots(config.server) + device_count - 1) / device_count;
  return std::clamp(lookups, kDeviceCallsMin, kDeviceCallsMax);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceCaches>> DeviceCaches::Create(
    const Config& config, const Options& options, const DeviceCacheFactory& factory,
    const std::function<void()>& on_answer) {
  std::unique_ptr<DeviceCaches> made(new DeviceCaches(config, options));
  HPS_RETURN_IF_ERROR(made->Open(factory, on_answer));
  return made;
}

absl::Status DeviceCaches::Open(const DeviceCacheFactory& factory,
                                const std::function<void()>& on_answer) {
  std::vector<int> devices = config_.l1.devices;
  if (config_.l1.devices_auto) {
    absl::StatusOr<std::vector<int>> found = factory.Devices();
    no_devices_ = found.status();
    devices = found.ok() ? *std::move(found) : std::vector<int>();
    if (devices.size() > kCachesMax) devices.resize(kCachesMax);
  }
  if (const absl::Status made = MakeCaches(factory, devices); !made.ok())
    return absl::Status(made.code(), absl::StrCat("l1.devices: ", made.message()));
  if (caches_.empty() && no_devices_.ok()) no_devices_ = factory.Support();
  for (const auto& cache : caches_) {
    healths_.push_back(std::make_unique<DeviceHealth>(cache->device(), on_answer));
    const absl::StatusOr<DeviceMemory> memory = factory.Memory(cache->device());
    if (!memory.ok()) continue;
    bytes_left_[cache->device()] = memory->free_bytes - std::min(memory->free_bytes, bytes_max_);
  }
  return absl::OkStatus();
}

// The lookups are divided among the devices that are there in the end, and an automatic budget is
// for the one of them that has least memory: where some had to be left out, the others are opened
// again with more.
absl::Status DeviceCaches::MakeCaches(const DeviceCacheFactory& factory,
                                      std::span<const int> devices) {
  std::vector<size_t> calls = {CallsMax(config_, options_.is_server, devices.size())};
  if (config_.l1.calls_max == 0 && calls.front() > kDeviceCallsMin)
    calls.push_back(kDeviceCallsMin);
  for (const int device : devices)
    HPS_RETURN_IF_ERROR(MakeCache(factory, device, calls, devices.size()));
  if (caches_.empty() || caches_.size() == devices.size()) return absl::OkStatus();
  const size_t calls_of_kept = CallsMax(config_, options_.is_server, caches_.size());
  if (calls_of_kept <= calls.front() && !options_.is_auto_budget) return absl::OkStatus();
  if (calls_of_kept > calls.front()) calls.insert(calls.begin(), calls_of_kept);
  std::vector<int> kept;
  for (const auto& cache : caches_) kept.push_back(cache->device());
  caches_.clear();
  if (options_.is_auto_budget) bytes_max_ = std::max(bytes_max_, AutoL1Bytes(kept, factory));
  for (const int device : kept)
    HPS_RETURN_IF_ERROR(MakeCache(factory, device, calls, devices.size()));
  return absl::OkStatus();
}

absl::Status DeviceCaches::MakeCache(const DeviceCacheFactory& factory, int device,
                                     std::span<const size_t> calls_max, size_t device_count) {
  const L1Config& l1 = config_.l1;
  const uint64_t staging_growth = StagingGrowthMax(factory, device, device_count);
  const auto make = [&](size_t calls) {
    return factory.Make({.device = device,
                         .bytes_max = bytes_max_,
                         .calls_max = calls,
                         .call_keys_max = l1.call_keys_max,
                         .call_staging_bytes = l1.call_staging_bytes,
                         .staging_growth_bytes_max = staging_growth});
  };
  auto cache = make(calls_max.front());
  for (; calls_max.size() > 1; calls_max = calls_max.subspan(1)) {
    if (cache.ok()) {
      // Tables have priority over calls, but allocate later: check that they would fit.
      const absl::Status room = (*cache)->OpenTable(kTrialRowBytes, bytes_max_).status();
      if (absl::IsResourceExhausted(room)) cache = room;
    }
    if (!absl::IsResourceExhausted(cache.status())) break;
    LogWarning(absl::StrCat("device ", device, ": not enough memory for ", calls_max[0],
                            " concurrent lookups, using ", calls_max[1], ": ",
                            cache.status().ToString()));
    cache = make(calls_max[1]);
  }
  if (cache.ok()) {
    caches_.push_back(*std::move(cache));
  } else if (l1.devices_auto) {
    LogWarning(absl::StrCat("device ", device, " is not used: ", cache.status().ToString()));
    skipped_.emplace(device, cache.status());
  } else {
    return cache.status();
  }
  return absl::OkStatus();
}

uint64_t DeviceCaches::BytesLeftOn(int device) const {
  const auto found = bytes_left_.find(device);
  return found == bytes_left_.end() ? UINT64_MAX : found->second;
}

std::vector<DeviceCache*> DeviceCaches::caches() const {
  std::vector<DeviceCache*> all;
  for (const auto& cache : caches_) all.push_back(cache.get());
  return all;
}

std::vector<DeviceHealth*> DeviceCaches::healths() const {
  std::vector<DeviceHealth*> all;
  for (const auto& health : healths_) all.push_back(health.get());
  return all;
}

std::vector<DeviceState> DeviceCaches::States() const {
  std::vector<DeviceState> states;
  for (const auto& health : healths_)
    states.push_back({.device = health->device(), .up = health->is_up()});
  for (const auto& [device, why] : skipped_) states.push_back({.device = device, .up = false});
  return states;
}

void DeviceCaches::NameDevices(std::span<TableStatistics> tables) const {
  for (TableStatistics& table : tables) {
    for (DeviceStatistics& device : table.l1_devices)
      device.device = caches_[static_cast<size_t>(device.device)]->device();
  }
}

absl::Status DeviceCaches::CheckDevice(int device) const {
  if (device == -1) return absl::OkStatus();
  for (const auto& cache : caches_) {
    if (cache->device() == device) return absl::OkStatus();
  }
  absl::Status reason = absl::UnavailableError("not in l1.devices, or not present");
  if (!no_devices_.ok()) reason = no_devices_;
  if (const auto found = skipped_.find(device); found != skipped_.end()) reason = found->second;
  return absl::Status(reason.code(), absl::StrCat("device ", device, ": ", reason.message()));
}

}  // namespace hps
