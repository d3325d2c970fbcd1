#include "model/auto_budgets.h"

#include <gtest/gtest.h>

#include <map>

#include "base/available_memory.h"
#include "hps/config.h"

namespace hps {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class DevicesWithMemory final : public DeviceCacheFactory {
 public:
  absl::Status Support() const override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<int>> Devices() const override {
    if (memory.empty()) return absl::UnavailableError("no device");
    std::vector<int> devices;
    for (const auto& [device, bytes] : memory) devices.push_back(device);
    return devices;
  }
  absl::StatusOr<std::string> DeviceName(int) const override { return "none"; }
  absl::StatusOr<DeviceMemory> Memory(int device) const override {
    const auto found = memory.find(device);
    if (found == memory.end()) return absl::UnavailableError("no such device");
    return found->second;
  }
  absl::StatusOr<std::unique_ptr<DeviceCache>> Make(const DeviceCacheOptions&) const override {
    return absl::UnimplementedError("none");
  }

  std::map<int, DeviceMemory> memory{};
};

TEST(ChooseBudgetsTest, LeavesGivenBudgetsAlone) {
  Config config;
  config.l1.bytes_max = 123;
  config.l2.bytes_max = 456;
  DevicesWithMemory devices;
  devices.memory[0] = {1000 * kMiB, 2000 * kMiB};
  const Config chosen = ChooseBudgets(config, devices);
  EXPECT_EQ(chosen.l1.bytes_max, 123u);
  EXPECT_EQ(chosen.l2.bytes_max, 456u);
}

TEST(ChooseBudgetsTest, Level1TakesAShareOfTheDeviceWithTheLeastFreeMemory) {
  DevicesWithMemory devices;
  devices.memory[0] = {10'000 * kMiB, 20'000 * kMiB};
  devices.memory[1] = {1000 * kMiB, 20'000 * kMiB};
  devices.memory[2] = {500 * kMiB, 20'000 * kMiB};
  Config config;
  EXPECT_EQ(ChooseBudgets(config, devices).l1.bytes_max, 300 * kMiB);
  config.l1.devices_auto = false;
  config.l1.devices = {0, 1};
  EXPECT_EQ(ChooseBudgets(config, devices).l1.bytes_max, 600 * kMiB);
  config.l1.devices = {0, 7};
  EXPECT_EQ(ChooseBudgets(config, devices).l1.bytes_max, 6000 * kMiB) << "7 is not there";
  EXPECT_EQ(ChooseBudgets(Config(), DevicesWithMemory()).l1.bytes_max, 2048 * kMiB)
      << "there is none";
}

TEST(ChooseBudgetsTest, Level2TakesHalfOfWhatIsAvailable) {
  const uint64_t before = AvailableMemoryBytes();
  const uint64_t bytes = ChooseBudgets(Config(), DevicesWithMemory()).l2.bytes_max;
  // Other programs may take or free memory meanwhile.
  EXPECT_GT(bytes, before / 4);
  EXPECT_LT(bytes, before / 4 * 3);
  Config without;
  without.l2.kind = L2Kind::kNone;
  EXPECT_EQ(ChooseBudgets(without, DevicesWithMemory()).l2.bytes_max, kAutoBytes);
}

TEST(StagingGrowthMaxTest, IsASixteenthOfTheScarcerMemory) {
  DevicesWithMemory devices;
  devices.memory[0] = {500 * kMiB, 1600 * kMiB};
  EXPECT_LE(StagingGrowthMax(devices, 0, 1), 100 * kMiB);
  EXPECT_GT(StagingGrowthMax(devices, 0, 1), 0u);
  EXPECT_LT(StagingGrowthMax(devices, 0, 1 << 20), kMiB) << "divided among the devices";
  EXPECT_EQ(StagingGrowthMax(devices, 5, 1), 0u);
}

}  // namespace
}  // namespace hps
