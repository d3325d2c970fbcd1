// A store whose level 1 is on device caches in host memory. For tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "node/open_store.h"
#include "node/test_store_files.h"
#include "testing/await.h"
#include "testing/faults/fault_cache.h"
#include "testing/host_device_cache/host_devices.h"

namespace hps {

// Devices that may have too little memory, and of which one may fail.
class DevicesInHostMemory final : public HostDevices {
 public:
  DevicesInHostMemory() {
    decorate = [this](std::unique_ptr<DeviceCache> cache) {
      return cache->device() == 1 ? WithFaults(std::move(cache), &faults_of_1) : std::move(cache);
    };
  }

  absl::StatusOr<std::unique_ptr<DeviceCache>> Make(
      const DeviceCacheOptions& options) const override {
    calls_max[options.device] = options.calls_max;
    if (options.device == full || options.calls_max > calls_with_room)
      return absl::ResourceExhaustedError("no memory is left there");
    DeviceCacheOptions granted = options;
    if (options.calls_max > calls_beside_tables) granted.bytes_max /= 2;
    return HostDevices::Make(granted);
  }

  int full = -1;
  size_t calls_with_room = SIZE_MAX;
  size_t calls_beside_tables = SIZE_MAX;
  TierFaults faults_of_1;
  mutable std::map<int, size_t> calls_max{};  // of the last cache that was asked for, by device
};

class DeviceLevelTest : public StoreFilesTest {
 protected:
  static constexpr KeyStatus kL1 = KeyStatus::kHitL1;

  DeviceLevelTest() : StoreFilesTest(uint64_t{4} << 20) {
    config_.l1.bytes_max = uint64_t{4} << 20;
    config_.l1.calls_max = 2;
    config_.l1.call_keys_max = 4096;
  }

  // Of a table of model m.
  ImportRequest Files(const std::string& table, size_t n, float value) {
    return StoreFilesTest::Files("m/" + table, n, value);
  }
  std::string KeysFile(const std::vector<Key>& keys) {
    std::string header = "{'descr': '<i8', 'fortran_order': False, 'shape': (" +
                         std::to_string(keys.size()) + ",), }";
    header.resize(117, ' ');
    header += '\n';
    const std::string path = directory_ + "/hot.npy";
    std::ofstream file(path, std::ios::binary);
    file << "\x93NUMPY" << '\x01' << '\0' << static_cast<char>(header.size()) << '\0' << header;
    for (Key key : keys) {
      std::array<char, sizeof key> bytes{};
      std::memcpy(bytes.data(), &key, sizeof key);
      file.write(bytes.data(), bytes.size());
    }
    return path;
  }

  std::unique_ptr<Store> Open(OpenMode mode = OpenMode::kReadWrite) {
    auto store = OpenStore(config_, mode, devices_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  struct Answer {
    float value = 0;  // of all rows; NaN when they differ
    LookupCounts counts;
  };
  static Answer LookUp(Store& store, const std::string& table, const std::vector<Key>& keys,
                       int device = 0, double hit_rate_threshold = 1.0) {
    Answer answer;
    auto session = store.NewSession("m", {.device = device});
    EXPECT_TRUE(session.ok()) << session.status();
    if (!session.ok()) return answer;
    std::vector<float> rows(keys.size() * kTestDim);
    const HostTableQuery query = {.table = *(*session)->FindTable("m/" + table),
                                  .keys = keys,
                                  .rows = std::as_writable_bytes(std::span(rows)),
                                  .status = {}};
    const absl::Status status =
        (*session)->Lookup(HostLookupRequest{.queries = {&query, 1},
                                             .timeout = std::chrono::minutes(1),
                                             .hit_rate_threshold = hit_rate_threshold},
                           &answer.counts);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(answer.counts.total(), keys.size());
    answer.value = rows.empty() ? 0 : rows[0];
    for (float element : rows) {
      if (element != answer.value) answer.value = std::numeric_limits<float>::quiet_NaN();
    }
    return answer;
  }
  // Repeats until level 1 answers all keys, because it may be filled in the background.
  static void ExpectSoonInL1(Store& store, const std::string& table, const std::vector<Key>& keys,
                             float value) {
    ASSERT_TRUE(AwaitCondition(
        [&] { return store.Statistics().tables.front().l1.entries >= keys.size(); }));
    const Answer answer = LookUp(store, table, keys);
    EXPECT_EQ(answer.value, value);
    EXPECT_EQ(answer.counts[kL1], keys.size());
  }
  static bool IsUp(const Store& store, int device) {
    for (const DeviceState& state : store.Statistics().devices) {
      if (state.device == device) return state.up;
    }
    return false;
  }
  static void Drain(Store& store) {
    EXPECT_TRUE(store.DrainPromotions(std::chrono::seconds(30)).ok());
  }
  // Asks for keys of which no row is waited for, until each has been said to be pending or is
  // there. Returns how many were in level 1 the first time.
  static uint64_t AskWithoutWaiting(Store& store, const std::vector<Key>& keys, int device = 0) {
    LookupCounts first;
    for (int ask = 0;; ++ask) {
      const LookupCounts counts = LookUp(store, "t", keys, device, 0.0).counts;
      if (ask == 0) first = counts;
      Drain(store);
      if (counts[KeyStatus::kDefaultDegraded] == 0) return first[kL1];
    }
  }
  // A table's budget in level 1; 0 = none.
  static uint64_t PartOf(Store& store, const std::string& table) {
    for (const TableStatistics& statistics : store.Statistics().tables) {
      if (statistics.name == table) return statistics.l1.bytes_max;
    }
    return 0;
  }
  // Waits until the table has its budget; other tables may have to be destroyed first.
  static testing::AssertionResult AwaitPart(Store& store, const std::string& table) {
    return AwaitCondition([&] { return PartOf(store, table) > 0; });
  }
  // The memory need of a table of n rows on a device.
  uint64_t Need(size_t n) const {
    return (*devices_.Make({.device = devices_.present[0], .bytes_max = 1 << 20}))
        ->TableBytes(kTestDim * sizeof(float), n);
  }

  DevicesInHostMemory devices_;
};

}  // namespace hps
