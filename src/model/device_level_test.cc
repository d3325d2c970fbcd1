// Level 1 of a store, with device caches in host memory.
#include "model/device_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "model/open_store.h"
#include "model/test_store_files.h"
#include "testing/faults/fault_cache.h"
#include "testing/host_device_cache/host_cache.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kDim = kTestDim;
constexpr size_t kRowBytes = kDim * sizeof(float);
constexpr KeyStatus kL1 = KeyStatus::kHitL1;

// Device caches in host memory.
class HostDevices final : public DeviceCacheFactory {
 public:
  absl::Status Support() const override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<int>> Devices() const override {
    if (present.empty()) return absl::UnavailableError("no driver");
    return present;
  }
  absl::StatusOr<std::string> DeviceName(int) const override { return "host"; }
  absl::StatusOr<DeviceMemory> Memory(int device) const override {
    const auto found = free_bytes.find(device);
    if (found == free_bytes.end()) return absl::UnavailableError("it does not say");
    return DeviceMemory{.free_bytes = found->second, .total_bytes = found->second};
  }
  absl::StatusOr<std::unique_ptr<DeviceCache>> Make(
      const DeviceCacheOptions& options) const override {
    calls_max[options.device] = options.calls_max;
    if (options.device == full || options.calls_max > calls_with_room)
      return absl::ResourceExhaustedError("no memory is left there");
    if (std::find(present.begin(), present.end(), options.device) == present.end())
      return absl::UnavailableError("there is none");
    const bool has_room_for_tables = options.calls_max <= calls_beside_tables;
    auto cache = MakeHostCache({.device = options.device,
                                .bytes_max = options.bytes_max / (has_room_for_tables ? 1 : 2),
                                .calls_max = options.calls_max,
                                .call_keys_max = options.call_keys_max,
                                .call_staging_bytes = options.call_staging_bytes});
    if (!cache.ok() || options.device != 1) return cache;
    return WithFaults(*std::move(cache), &faults_of_1);
  }

  std::vector<int> present = {0};
  int full = -1;
  size_t calls_with_room = SIZE_MAX;
  size_t calls_beside_tables = SIZE_MAX;
  std::map<int, uint64_t> free_bytes{};  // of a device's memory
  mutable TierFaults faults_of_1;
  mutable std::map<int, size_t> calls_max{};  // of the last cache that was asked for, by device
};

class DeviceLevelTest : public StoreFilesTest {
 protected:
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
    std::vector<float> rows(keys.size() * kDim);
    const HostTableQuery query = {.table = *(*session)->FindTable("m/" + table),
                                  .keys = keys,
                                  .rows = std::as_writable_bytes(std::span(rows)),
                                  .status = {}};
    const absl::Status status =
        (*session)->Lookup(HostLookupRequest{.queries = {&query, 1},
                                             .hit_rate_threshold = hit_rate_threshold,
                                             .timeout = std::chrono::minutes(1)},
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
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    uint64_t hits = 0;
    do {
      std::this_thread::yield();
      hits = store.Statistics().tables.front().l1.entries;
    } while (hits < keys.size() && std::chrono::steady_clock::now() < end);
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
  static uint64_t AskWithoutWaiting(Store& store, const std::vector<Key>& keys) {
    LookupCounts first;
    for (int ask = 0;; ++ask) {
      const LookupCounts counts = LookUp(store, "t", keys, 0, 0.0).counts;
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
  static void AwaitPart(Store& store, const std::string& table) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (PartOf(store, table) == 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
  }
  // The memory need of a table of n rows on a device.
  uint64_t Need(size_t n) const {
    return (*devices_.Make({.device = devices_.present[0], .bytes_max = 1 << 20}))
        ->TableBytes(kRowBytes, n);
  }

  HostDevices devices_;
};

TEST_F(DeviceLevelTest, RowsRiseAndAreCountedByDevice) {
  devices_.present = {2, 5};
  Import(Files("t", 100, 1));
  const auto store = Open();
  EXPECT_EQ(LookUp(*store, "t", Iota(100), 5).counts[KeyStatus::kHitL3], 100u);
  Drain(*store);
  const Answer again = LookUp(*store, "t", Iota(100), 5);
  EXPECT_EQ(again.counts[kL1], 100u);
  EXPECT_EQ(again.value, 1);
  EXPECT_EQ(LookUp(*store, "t", {1, 2, 3}, 2).counts[KeyStatus::kHitL2], 3u) << "has its own";
  Drain(*store);
  EXPECT_EQ(LookUp(*store, "t", {1, 2, 3}, -1).counts[KeyStatus::kHitL2], 3u) << "on the host";
  const TableStatistics table = store->Statistics().tables.front();
  ASSERT_EQ(table.l1_devices.size(), 2u);
  EXPECT_EQ(table.l1_devices[0].device, 2);
  EXPECT_EQ(table.l1_devices[0].l1.entries, 3u);
  EXPECT_EQ(table.l1_devices[0].hits + table.l1_devices[0].misses, 3u);
  EXPECT_EQ(table.l1_devices[1].device, 5);
  EXPECT_EQ(table.l1_devices[1].hits, 100u);
  EXPECT_EQ(table.l1_devices[1].misses, 100u);
  EXPECT_EQ(table.l1_devices[1].l1.insertions, 100u);
  EXPECT_EQ(table.l1.entries, 103u);
  EXPECT_EQ(table.l1.bytes_max, 2 * table.l1_devices[0].l1.bytes_max);
}

TEST_F(DeviceLevelTest, OnlyTheDevicesOfTheConfiguration) {
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

TEST_F(DeviceLevelTest, WithoutADeviceTheHostAnswers) {
  devices_.present = {};
  Import(Files("t", 10, 1));
  const auto store = Open();
  EXPECT_EQ(LookUp(*store, "t", {1}, -1).value, 1);
  const absl::Status status = store->NewSession("m", {.device = 0}).status();
  EXPECT_EQ(status, absl::UnavailableError("device 0: no driver"));
  EXPECT_TRUE(store->Statistics().tables.front().l1_devices.empty());
}

TEST_F(DeviceLevelTest, ADeviceWithoutRoomIsLeftOutUnlessItIsListed) {
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

// Catches: a server that divides its lookups also among devices that it does not use.
TEST_F(DeviceLevelTest, TheDevicesThatAreKeptHaveACallForEachLookUp) {
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

// Catches: a load that waits for a device that does not answer, for each of the model's tables.
TEST_F(DeviceLevelTest, ADeviceThatDoesNotAnswerTakesItsTablesWhenItAnswersAgain) {
  devices_.present = {0, 1};
  Import(Files("a", 100, 1));
  const auto store = Open();
  EXPECT_EQ(LookUp(*store, "a", Iota(100), 1).value, 1);
  Drain(*store);
  TierFaults& faults = devices_.faults_of_1;
  faults.Plan(TierOperation::kBegin, {});
  EXPECT_EQ(LookUp(*store, "a", {1}, 1).value, 1) << "the host answers in its place";
  EXPECT_FALSE(IsUp(*store, 1));
  EXPECT_TRUE(IsUp(*store, 0));
  const uint64_t opened = faults.calls(TierOperation::kOpenTable);
  const uint64_t dumped = faults.calls(TierOperation::kDump);
  ASSERT_TRUE(store->Import(Files("a", 100, 2)).ok());
  EXPECT_EQ(LookUp(*store, "a", {1}, 1).value, 2);
  EXPECT_EQ(faults.calls(TierOperation::kOpenTable), opened);
  EXPECT_EQ(faults.calls(TierOperation::kDump), dumped);
  const auto devices_of_a = [&] { return store->Statistics().tables.front().l1_devices.size(); };
  faults.Clear();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (devices_of_a() < 2 && std::chrono::steady_clock::now() < end)
    EXPECT_EQ(LookUp(*store, "a", {1}, 1).value, 2);
  EXPECT_EQ(devices_of_a(), 2u) << "lookups have found that it answers again";
  EXPECT_TRUE(IsUp(*store, 1));
}

// ... also where no lookup has found yet that the device hangs.
TEST_F(DeviceLevelTest, OneWaitForADeviceThatHangsIsEnough) {
  devices_.present = {0, 1};
  Import(Files("a", 100, 1));
  const auto store = Open();
  TierFaults& faults = devices_.faults_of_1;
  faults.Plan(TierOperation::kDump, {.status = absl::DeadlineExceededError("it hangs")});
  const uint64_t opened = faults.calls(TierOperation::kOpenTable);
  for (const float value : {2.0F, 3.0F}) {
    ASSERT_TRUE(store->Import(Files("a", 100, value)).ok());
    EXPECT_EQ(LookUp(*store, "a", {1}, 0).value, value);
    EXPECT_FALSE(IsUp(*store, 1));
  }
  EXPECT_EQ(faults.calls(TierOperation::kDump), 1u);
  EXPECT_EQ(faults.calls(TierOperation::kOpenTable), opened);
}

// Catches: a server with fewer device calls than lookups, and memory for calls that are not used.
TEST_F(DeviceLevelTest, ThereIsACallForEachLookUpOfAServer) {
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

TEST_F(DeviceLevelTest, ACallThatIsLargerThanThePoolIsAnsweredInPieces) {
  config_.l1.call_keys_max = 8;
  Import(Files("t", 100, 1));
  const auto store = Open();
  EXPECT_EQ(LookUp(*store, "t", Iota(100)).value, 1);
}

// Catches: a filter that keeps a row out which a lookup has called pending.
TEST_F(DeviceLevelTest, ColdKeysThatAreNotWaitedForAreThereTheNextTime) {
  constexpr size_t kKeys = 100'000;
  config_.l1.bytes_max = uint64_t{32} << 20;
  config_.l2.bytes_max = uint64_t{64} << 20;
  Import(Files("t", kKeys, 3));
  const auto store = Open();
  for (Key first = 0; first < Key{kKeys}; first += 4000)
    EXPECT_EQ(AskWithoutWaiting(*store, Iota(4000, first)), 0u);
  const Answer answer = LookUp(*store, "t", Iota(kKeys), 0, 0.0);
  EXPECT_EQ(answer.counts[kL1], kKeys);
  EXPECT_EQ(answer.value, 3);
}

TEST_F(DeviceLevelTest, PendingRowsEnterFullLevels) {
  config_.l1.bytes_max = Need(5000);
  config_.l2.bytes_max = uint64_t{1} << 20;
  Import(Files("t", 50'000, 3));
  const auto store = Open();
  for (Key first = 0; first < 40'000; first += 1000) {
    LookUp(*store, "t", Iota(1000, first));
    Drain(*store);
  }
  const LevelStatistics l1 = store->Statistics().tables.front().l1;
  EXPECT_GT(l1.not_admitted, 20'000u) << "it is full";
  EXPECT_EQ(AskWithoutWaiting(*store, Iota(300, 45'000)), 0u);
  EXPECT_GE(AskWithoutWaiting(*store, Iota(300, 45'000)), 270u);
}

TEST_F(DeviceLevelTest, OnePassOverColdKeysLeavesTheHitRate) {
  config_.l1.bytes_max = Need(5000);
  config_.l2.preload = 1.0;
  Import(Files("t", 60'000, 3));
  const auto store = Open();
  std::mt19937_64 random(7);
  const auto hit_rate = [&](int calls) {
    uint64_t hits = 0;
    for (int call = 0; call < calls; ++call) {
      std::vector<Key> keys(2000);
      for (Key& key : keys) {
        const double place = static_cast<double>(random() % 1'000'000) * 1e-6;
        key = static_cast<Key>(place * place * place * 12'000);
      }
      hits += LookUp(*store, "t", keys).counts[kL1];
      Drain(*store);
    }
    return static_cast<double>(hits) / (2000.0 * calls);
  };
  hit_rate(40);
  const double before = hit_rate(10);
  EXPECT_GT(before, 0.7);
  for (Key first = 20'000; first < 60'000; first += 2000) {
    LookUp(*store, "t", Iota(2000, first));
    Drain(*store);
  }
  EXPECT_GT(hit_rate(10), before - 0.01);
}

TEST_F(DeviceLevelTest, PreloadsAShareOfEveryTable) {
  config_.l1.preload = 0.5;
  Import(Files("t", 9000, 3));
  const auto store = Open();
  EXPECT_EQ(store->Statistics().tables.front().l1.entries, 4500u);
  const Answer answer = LookUp(*store, "t", Iota(1000, 4000));
  EXPECT_EQ(answer.counts[kL1], 500u);
  EXPECT_EQ(answer.value, 3);
}

TEST_F(DeviceLevelTest, PreloadEndsWhereTheBudgetDoes) {
  config_.l1.preload = 1.0;
  config_.l1.bytes_max = Need(20'000);
  Import(Files("t", 200'000, 3));
  const auto store = Open();
  const LevelStatistics l1 = store->Statistics().tables.front().l1;
  EXPECT_GE(l1.entries, 20'000u);
  EXPECT_LT(l1.insertions, 60'000u);
}

// Catches: a preload that ends with the first row that finds no place.
TEST_F(DeviceLevelTest, PreloadFillsWhatFits) {
  constexpr size_t kRows = 200'000;
  config_.l1.preload = 1.0;
  config_.l1.bytes_max = Need(kRows);  // places for a third more
  Import(Files("t", kRows, 3));
  const auto store = Open();
  const LevelStatistics l1 = store->Statistics().tables.front().l1;
  EXPECT_GT(l1.entries, kRows * 995 / 1000);
  EXPECT_EQ(l1.evictions, 0u);
}

TEST_F(DeviceLevelTest, LoadsHotKeysAtStart) {
  config_.model = {
      {.name = "m", .table = {{.name = "t", .l1_hot_keys = KeysFile({7, 123456, 5, -1})}}}};
  config_.l2.preload = 1.0;
  Import(Files("t", 6000, 3));
  const auto store = Open();
  EXPECT_EQ(store->Statistics().tables.front().l1.entries, 2u);
  EXPECT_EQ(LookUp(*store, "t", {5, 7}).counts[kL1], 2u);
  EXPECT_EQ(LookUp(*store, "t", {6}).counts[kL1], 0u);
}

// Catches: the coldest keys of a long list, or the preload after it, evict the hottest.
TEST_F(DeviceLevelTest, OfTooManyHotKeysTheHottestStay) {
  config_.l1.bytes_max = Need(5000);
  config_.l1.preload = 1.0;
  std::vector<Key> hot = Iota(30'000);
  std::reverse(hot.begin(), hot.end());
  config_.model = {{.name = "m", .table = {{.name = "t", .l1_hot_keys = KeysFile(hot)}}}};
  Import(Files("t", 30'000, 3));
  const auto store = Open();
  const std::vector<Key> hottest(hot.begin(), hot.begin() + 4096);
  EXPECT_GE(LookUp(*store, "t", hottest).counts[kL1], hottest.size() - 40)
      << "next to none is lost";
}

// Catches: a process that is told to end but continues to fill its devices.
TEST_F(DeviceLevelTest, NothingIsFilledOnceItIsToEnd) {
  config_.l1.preload = 1.0;
  config_.model = {{.name = "m", .table = {{.name = "t", .l1_hot_keys = KeysFile({7})}}}};
  Import(Files("t", 9000, 3));
  const auto store = Open(OpenMode::kServe);
  store->models().StopPreloading();
  ASSERT_TRUE(store->models().LoadAll().ok());
  EXPECT_EQ(store->Statistics().tables.front().l1.entries, 0u);
  EXPECT_EQ(LookUp(*store, "t", {7}).value, 3);
}

TEST_F(DeviceLevelTest, HotKeysThatCanNotBeReadDoNotStopTheStore) {
  config_.model = {{.name = "m", .table = {{.name = "t", .l1_hot_keys = "/none.npy"}}}};
  Import(Files("t", 10, 3));
  EXPECT_EQ(LookUp(*Open(), "t", {5}).value, 3);
}

TEST_F(DeviceLevelTest, BudgetsAreDividedAndOverridden) {
  config_.l1.bytes_max = 400'000;
  config_.model = {{.name = "m",
                    .table = {{.name = "b", .l1_bytes = 100'000},
                              {.name = "c", .l1_share = 0.0},
                              {.name = "e", .l1_bytes = 1}}}};
  for (const char* table : {"a", "b", "c", "d", "e"}) Import(Files(table, 10'000, 1));
  const auto store = Open();
  std::map<std::string, uint64_t> bytes;
  uint64_t sum = 0;
  for (const TableStatistics& table : store->Statistics().tables) {
    bytes[table.name] = table.l1.bytes_max;
    sum += table.l1.bytes_max;
    const Answer answer = LookUp(*store, table.name.substr(2), Iota(100));
    EXPECT_EQ(answer.value, 1) << table.name;
  }
  EXPECT_LE(sum, config_.l1.bytes_max);
  EXPECT_LE(bytes["m/b"], 100'000u);
  EXPECT_GT(bytes["m/b"], 50'000u);
  EXPECT_EQ(bytes["m/c"], 0u) << "stays out";
  EXPECT_EQ(bytes["m/e"], 0u) << "a byte is of no use";
  EXPECT_GT(bytes["m/a"], 0u);
  EXPECT_EQ(bytes["m/a"], bytes["m/d"]);
}

// The new incarnation gets its budget beside the old one if there is room, and is filled with the
// hot keys before it is served: no lookup finds it cold.
TEST_F(DeviceLevelTest, ASwitchKeepsTheHotKeysHot) {
  Import(Files("t", 1000, 1));
  const auto store = Open();
  LookUp(*store, "t", Iota(50, 200));
  Drain(*store);
  ASSERT_TRUE(store->Import(Files("t", 1000, 2)).ok());
  const Answer answer = LookUp(*store, "t", Iota(50, 200));
  EXPECT_EQ(answer.value, 2);
  EXPECT_EQ(answer.counts[kL1], 50u);
}

// If there is room for one incarnation only, it waits until the old one is destroyed. Catches:
// memory held twice, a lost budget, and rows of the old import.
TEST_F(DeviceLevelTest, ASwitchReusesTheMemory) {
  config_.l1.bytes_max = Need(1000);
  Import(Files("t", 1000, 1));
  const auto store = Open();
  for (float value = 1; value < 6; ++value) {
    EXPECT_EQ(LookUp(*store, "t", Iota(50, 200)).value, value);
    Drain(*store);
    ExpectSoonInL1(*store, "t", Iota(50, 200), value);
    ASSERT_TRUE(store->Import(Files("t", 1000, value + 1)).ok());
    EXPECT_EQ(LookUp(*store, "t", Iota(50, 200)).value, value + 1);
    ExpectSoonInL1(*store, "t", Iota(50, 200), value + 1);
  }
}

TEST_F(DeviceLevelTest, ATableThatIsNotTouchedKeepsItsRows) {
  Import(Files("a", 100, 1));
  Import(Files("b", 100, 1));
  const auto store = Open();
  LookUp(*store, "a", Iota(100));
  Drain(*store);
  ASSERT_TRUE(store->Import(Files("b", 100, 2)).ok());
  EXPECT_EQ(LookUp(*store, "a", Iota(100)).counts[kL1], 100u);
  EXPECT_EQ(LookUp(*store, "b", Iota(100)).value, 2);
}

// One switch drops the table that fills the level and brings a new one, which has to wait for it.
TEST_F(DeviceLevelTest, ANewTableThatHadToWaitIsPreloaded) {
  config_.l1.bytes_max = Need(1000);
  config_.l1.preload = 0.5;
  Import(Files("a", 1000, 1));
  const auto store = Open();
  ExpectSoonInL1(*store, "a", Iota(500), 1);
  Import(Files("b", 1000, 2));  // is staged
  ASSERT_TRUE(store->Drop("m/a").ok());
  ASSERT_EQ(store->Statistics().tables.size(), 1u);
  ExpectSoonInL1(*store, "b", Iota(500), 2);
}

// Catches: a table that stays without level 1 although memory has become free.
TEST_F(DeviceLevelTest, WhatADroppedTableHeldIsGivenToOneThatHasNothing) {
  config_.l1.bytes_max = Need(1000);
  config_.l1.preload = 0.5;
  config_.model = {{.name = "m", .table = {{.name = "a", .l1_bytes = Need(1000)}}}};
  Import(Files("a", 1000, 1));
  const auto store = Open();
  ASSERT_TRUE(store->Import(Files("b", 1000, 2)).ok());
  EXPECT_EQ(PartOf(*store, "m/b"), 0u) << "all was given away";
  EXPECT_EQ(LookUp(*store, "b", Iota(10)).value, 2);
  ASSERT_TRUE(store->Drop("m/a").ok());
  ExpectSoonInL1(*store, "b", Iota(500), 2);
  EXPECT_GT(PartOf(*store, "m/b"), 0u);
}

// Catches: budgets that stay unchanged when tables are added or resized, so that a new table has
// none.
TEST_F(DeviceLevelTest, ASwitchDividesTheLevelAnew) {
  config_.l1.bytes_max = Need(20'000);
  Import(Files("a", 20'000, 1));
  const auto store = Open();
  EXPECT_EQ(LookUp(*store, "a", Iota(64)).value, 1);
  Drain(*store);
  EXPECT_GT(PartOf(*store, "m/a"), config_.l1.bytes_max / 8 * 7);
  ASSERT_TRUE(store->Import(Files("b", 20'000, 2)).ok());
  AwaitPart(*store, "m/a");
  AwaitPart(*store, "m/b");
  EXPECT_GT(PartOf(*store, "m/a"), config_.l1.bytes_max / 8 * 3);
  EXPECT_GT(PartOf(*store, "m/b"), config_.l1.bytes_max / 8 * 3);
  EXPECT_LE(PartOf(*store, "m/a") + PartOf(*store, "m/b"), config_.l1.bytes_max);
  ExpectSoonInL1(*store, "a", Iota(64), 1);  // the hot keys were copied
  // One becomes much smaller: the other grows only when it is imported again.
  ASSERT_TRUE(store->Import(Files("b", 10, 3)).ok());
  ASSERT_TRUE(store->Import(Files("a", 20'000, 4)).ok());
  AwaitPart(*store, "m/a");
  EXPECT_GT(PartOf(*store, "m/a"), config_.l1.bytes_max / 2);
  // One becomes much larger.
  ASSERT_TRUE(store->Import(Files("b", 20'000, 5)).ok());
  AwaitPart(*store, "m/b");
  EXPECT_GT(PartOf(*store, "m/b"), config_.l1.bytes_max / 8 * 3);
  EXPECT_EQ(LookUp(*store, "a", Iota(64)).value, 4);
  EXPECT_EQ(LookUp(*store, "b", Iota(64)).value, 5);
}

// Catches: a session without its cache's tables, a torn row, or an older row while incarnations are
// replaced.
TEST_F(DeviceLevelTest, LookUpsGoOnWhileTablesSwitch) {
  config_.l1.bytes_max = Need(1000);
  Import(Files("t", 1000, 1));
  const auto store = Open();
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> wrong = 0;
  std::thread reader([&] {
    float newest = 1;
    while (!stop.load()) {
      const float value = LookUp(*store, "t", Iota(64)).value;
      wrong += !(value >= newest);
      newest = value;
    }
  });
  for (float value = 2; value < 12; ++value)
    EXPECT_TRUE(store->Import(Files("t", 1000, value)).ok());
  stop = true;
  reader.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(LookUp(*store, "t", {3}).value, 11);
}

}  // namespace
}  // namespace hps
