#include "node/auto_budgets.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/available_memory.h"
#include "base/logging.h"
#include "types/units.h"

namespace hps {
namespace {

// Of the memory of a device. The rest is for the buffers of lookups, for networks and for other
// programs.
constexpr double kDeviceShare = 0.6;
// Level 2, where the tables of before and after a switch are in memory together.
constexpr uint64_t kHostPart = 3;
constexpr uint64_t kStagingPart = 16;

constexpr uint64_t kMiB = uint64_t{1} << 20;
// Where nothing says how much memory there is.
constexpr uint64_t kL2BytesOfUnknown = 4096 * kMiB;
constexpr uint64_t kL1BytesOfUnknown = 2048 * kMiB;
// The least budget, so that a busy machine starts at all.
constexpr uint64_t kLeastBytes = 64 * kMiB;

uint64_t Rounded(uint64_t bytes) { return std::max(kLeastBytes, bytes / kMiB * kMiB); }

uint64_t L2Bytes() {
  const uint64_t available = AvailableMemoryBytes();
  if (available == UINT64_MAX) return kL2BytesOfUnknown;
  return Rounded(available / kHostPart);
}

uint64_t L1Bytes(const L1Config& l1, const DeviceCacheFactory& factory) {
  if (!l1.devices_auto) return AutoL1Bytes(l1.devices, factory);
  return AutoL1Bytes(factory.Devices().value_or(std::vector<int>()), factory);
}

}  // namespace

uint64_t AutoL1Bytes(std::span<const int> devices, const DeviceCacheFactory& factory) {
  uint64_t least_free = UINT64_MAX;
  for (const int device : devices) {
    const absl::StatusOr<DeviceMemory> memory = factory.Memory(device);
    if (memory.ok()) least_free = std::min(least_free, memory->free_bytes);
  }
  if (least_free == UINT64_MAX) return kL1BytesOfUnknown;
  return Rounded(static_cast<uint64_t>(static_cast<double>(least_free) * kDeviceShare));
}

Config ChooseBudgets(const Config& config, const DeviceCacheFactory& devices) {
  Config chosen = config;
  if (config.l2.bytes_max == kAutoBytes && HasMemory(config.l2.kind)) {
    chosen.l2.bytes_max = L2Bytes();
    LogInfo(absl::StrCat("l2.bytes_max = \"auto\": level 2 may take ",
                         FormatByteSize(chosen.l2.bytes_max)));
  }
  if (config.l1.bytes_max == kAutoBytes) {
    chosen.l1.bytes_max = L1Bytes(config.l1, devices);
    LogInfo(absl::StrCat("l1.bytes_max = \"auto\": level 1 may take ",
                         FormatByteSize(chosen.l1.bytes_max), " on each device"));
  }
  return chosen;
}

Config WithChosenBudgets(const Config& config) {
  return ChooseBudgets(config, BuiltInDeviceCacheFactory());
}

uint64_t StagingGrowthMax(const DeviceCacheFactory& devices, int device, size_t device_count) {
  const absl::StatusOr<DeviceMemory> memory = devices.Memory(device);
  if (!memory.ok()) return 0;
  const uint64_t of_host =
      AvailableMemoryBytes() / kStagingPart / std::max<size_t>(1, device_count);
  return std::min(of_host, memory->total_bytes / kStagingPart);
}

}  // namespace hps
