#include "node/device_caches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "node/test_device_level.h"

namespace hps {
namespace {

using ::testing::HasSubstr;
using DeviceCachesTest = DeviceLevelTest;

TEST_F(DeviceCachesTest, OnlyTheDevicesOfTheConfiguration) {
  devices_.present = {0, 1};
  config_.l1.devices_auto = false;
  config_.l1.devices = {1};
  Import(Files("t", 10, 1));
  const auto store = Open();
  EXPECT_EQ(LookUp(*store, "t", {1}, 1).value, 1);
  const absl::Status status = store->NewSession("m", {.device = 0}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("device 0: not in l1.devices, or not present"));
  config_.l1.devices = {1, 7};
  EXPECT_EQ(OpenStore(config_, OpenMode::kReadOnly, devices_).status().code(),
            absl::StatusCode::kUnavailable);
  config_.l1.devices = {};
  EXPECT_EQ(Open(OpenMode::kReadOnly)->NewSession("m", {.device = 1}).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(DeviceCachesTest, WithoutADeviceTheHostAnswers) {
  devices_.present = {};
  Import(Files("t", 10, 1));
  const auto store = Open();
  EXPECT_EQ(LookUp(*store, "t", {1}, -1).value, 1);
  const absl::Status status = store->NewSession("m", {.device = 0}).status();
  EXPECT_EQ(status, absl::UnavailableError("device 0: no driver"));
  EXPECT_TRUE(store->Statistics().tables.front().l1_devices.empty());
}

TEST_F(DeviceCachesTest, ADeviceWithoutRoomIsLeftOutUnlessItIsListed) {
  devices_.present = {0, 1};
  devices_.full = 1;
  Import(Files("t", 10, 1));
  EXPECT_EQ(Open()->NewSession("m", {.device = 1}).status(),
            absl::ResourceExhaustedError("device 1: no memory is left there"));
  config_.l1.devices_auto = false;
  config_.l1.devices = {0, 1};
  EXPECT_EQ(OpenStore(config_, OpenMode::kReadWrite, devices_).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// Catches: a budget for a GPU that is not used, which the others then have, too.
TEST_F(DeviceCachesTest, AnAutomaticBudgetIsForTheDevicesThatAreKept) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  devices_.present = {0, 1, 2};
  devices_.memory = {{0, {1000 * kMiB, 2000 * kMiB}},
                     {1, {200 * kMiB, 2000 * kMiB}},
                     {2, {1500 * kMiB, 2000 * kMiB}}};
  config_.l1.bytes_max = kAutoBytes;
  Import(Files("t", 10, 1));
  EXPECT_EQ(Open()->Statistics().l1_bytes_max, 120 * kMiB);
  devices_.full = 1;
  const auto store = Open();
  EXPECT_EQ(store->Statistics().l1_bytes_max, 600 * kMiB);
  EXPECT_EQ(LookUp(*store, "t", {1}, 2).value, 1);
  EXPECT_FALSE(IsUp(*store, 1));
  // Half of what the level leaves is for the rows of predictions.
  const std::vector<LookupDevice> devices = store->models().devices();
  ASSERT_EQ(devices.size(), 2U) << "one has no level 1";
  EXPECT_EQ(devices[0].prediction_row_bytes_max, 200 * kMiB);
  EXPECT_EQ(devices[1].prediction_row_bytes_max, 450 * kMiB);
}

// Catches: a server that divides its lookups also among devices that it does not use.
TEST_F(DeviceCachesTest, TheDevicesThatAreKeptHaveACallForEachLookUp) {
  config_.server.threads = 100;
  config_.server.lookups = 40;
  config_.l1.calls_max = 0;
  config_.l1.call_keys_max = 16;
  config_.l1.call_staging_bytes = 1024;
  Import(Files("t", 10, 1));
  devices_.present = {0, 1, 2};
  devices_.full = 1;
  ASSERT_NE(Open(OpenMode::kServe), nullptr);
  EXPECT_EQ(devices_.calls_max[0], 20u);
  EXPECT_EQ(devices_.calls_max[2], 20u);
  devices_.calls_with_room = 19;
  const auto store = Open(OpenMode::kServe);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(devices_.calls_max[0], 16u) << "as many as there is memory for";
  const std::vector<DeviceState> states = store->Statistics().devices;
  ASSERT_EQ(states.size(), 3u);
  for (const DeviceState& state : states) EXPECT_EQ(state.up, state.device != 1) << state.device;
}

// Catches: a server with fewer device calls than lookups, and memory for calls that are not used.
TEST_F(DeviceCachesTest, ThereIsACallForEachLookUpOfAServer) {
  struct Case {
    OpenMode mode;
    uint32_t calls_max;
    uint32_t lookups;
    std::vector<int> present;
    size_t calls_with_room;
    std::map<int, size_t> expected;
  };
  config_.server.threads = 100;
  config_.l1.call_keys_max = 16;
  config_.l1.call_staging_bytes = 1024;
  Import(Files("t", 10, 1));
  for (const Case& c : {Case{OpenMode::kServe, 0, 40, {0}, 40, {{0, 40}}},
                        Case{OpenMode::kServe, 0, 41, {0, 1}, 40, {{0, 21}, {1, 21}}},
                        Case{OpenMode::kServe, 0, 3, {0}, 40, {{0, 16}}},
                        Case{OpenMode::kServe, 0, 41, {0}, 40, {{0, 16}}},
                        Case{OpenMode::kServe, 5, 40, {0, 1}, 40, {{0, 5}, {1, 5}}},
                        Case{OpenMode::kReadWrite, 0, 40, {0}, 40, {{0, 16}}}}) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(c.mode) << " " << c.calls_max << " "
                                    << c.lookups << " " << c.present.size());
    config_.l1.calls_max = c.calls_max;
    config_.server.lookups = c.lookups;
    devices_.present = c.present;
    devices_.calls_with_room = c.calls_with_room;
    devices_.calls_max.clear();
    const std::unique_ptr<Store> store = Open(c.mode);
    ASSERT_NE(store, nullptr);
    ASSERT_TRUE(store->models().LoadAll().ok());
    EXPECT_EQ(LookUp(*store, "t", {1}).value, 1);
    EXPECT_EQ(devices_.calls_max, c.expected);
  }
  config_.l1.calls_max = 0;
  config_.server.lookups = 40;
  devices_.calls_beside_tables = 39;
  EXPECT_EQ(Open(OpenMode::kServe)->Statistics().tables.size(), 0U) << "nothing is loaded yet";
  EXPECT_EQ(devices_.calls_max, (std::map<int, size_t>{{0, 16}})) << "the tables come first";
  // A configured number is not reduced.
  config_.l1.calls_max = 41;
  EXPECT_EQ(Open()->NewSession("m", {.device = 0}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hps
