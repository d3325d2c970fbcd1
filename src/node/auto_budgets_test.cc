#include "node/auto_budgets.h"

#include <gtest/gtest.h>

#include <map>

#include "base/available_memory.h"
#include "hps/config.h"
#include "testing/host_device_cache/host_devices.h"

namespace hps {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

HostDevices DevicesWith(const std::map<int, DeviceMemory>& memory) {
  HostDevices devices;
  devices.memory = memory;
  devices.present.clear();
  for (const auto& [device, bytes] : memory) devices.present.push_back(device);
  return devices;
}

TEST(ChooseBudgetsTest, LeavesGivenBudgetsAlone) {
  Config config;
  config.l1.bytes_max = 123;
  config.l2.bytes_max = 456;
  const HostDevices devices = DevicesWith({{0, {1000 * kMiB, 2000 * kMiB}}});
  const Config chosen = ChooseBudgets(config, devices);
  EXPECT_EQ(chosen.l1.bytes_max, 123u);
  EXPECT_EQ(chosen.l2.bytes_max, 456u);
}

TEST(ChooseBudgetsTest, Level1TakesAShareOfTheDeviceWithTheLeastFreeMemory) {
  const HostDevices devices = DevicesWith({{0, {10'000 * kMiB, 20'000 * kMiB}},
                                           {1, {1000 * kMiB, 20'000 * kMiB}},
                                           {2, {500 * kMiB, 20'000 * kMiB}}});
  Config config;
  EXPECT_EQ(ChooseBudgets(config, devices).l1.bytes_max, 300 * kMiB);
  config.l1.devices_auto = false;
  config.l1.devices = {0, 1};
  EXPECT_EQ(ChooseBudgets(config, devices).l1.bytes_max, 600 * kMiB);
  config.l1.devices = {0, 7};
  EXPECT_EQ(ChooseBudgets(config, devices).l1.bytes_max, 6000 * kMiB) << "7 is not there";
  EXPECT_EQ(ChooseBudgets(Config(), DevicesWith({})).l1.bytes_max, 2048 * kMiB) << "there is none";
}

// Catches: a budget that takes all of the memory while two versions of the tables are there.
TEST(ChooseBudgetsTest, Level2LeavesMemoryWhereTwoVersionsAreThere) {
  const uint64_t before = AvailableMemoryBytes();
  const uint64_t bytes = ChooseBudgets(Config(), DevicesWith({})).l2.bytes_max;
  // Other programs may take or free memory meanwhile.
  EXPECT_GT(bytes, before / 5);
  EXPECT_LT(2 * bytes, before / 5 * 4);
  Config without;
  without.l2.kind = L2Kind::kNone;
  EXPECT_EQ(ChooseBudgets(without, DevicesWith({})).l2.bytes_max, kAutoBytes);
}

TEST(StagingGrowthMaxTest, IsASixteenthOfTheScarcerMemory) {
  const HostDevices devices = DevicesWith({{0, {500 * kMiB, 1600 * kMiB}}});
  EXPECT_LE(StagingGrowthMax(devices, 0, 1), 100 * kMiB);
  EXPECT_GT(StagingGrowthMax(devices, 0, 1), 0u);
  EXPECT_LT(StagingGrowthMax(devices, 0, 1 << 20), kMiB) << "divided among the devices";
  EXPECT_EQ(StagingGrowthMax(devices, 5, 1), 0u);
}

}  // namespace
}  // namespace hps
