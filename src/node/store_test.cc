#include "hps/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "node/test_store_files.h"
#include "node/tier_factory.h"
#include "testing/await.h"
#include "tier/device_cache_factory.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kDim = kTestDim;

class StoreTest : public StoreFilesTest {
 protected:
  StoreTest() : StoreFilesTest(uint64_t{64} << 20) {}

  std::unique_ptr<Store> Open(OpenMode mode = OpenMode::kReadWrite) {
    auto store = Store::Open(config_, mode);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  struct Answer {
    std::vector<float> firsts;  // first element of each row
    LookupCounts counts;
  };
  static Answer LookUp(Store& store, const std::string& table, const std::vector<Key>& keys) {
    Answer answer;
    auto session = store.NewSession(table.substr(0, table.find('/')), {});
    EXPECT_TRUE(session.ok()) << session.status();
    if (!session.ok()) return answer;
    const auto number = (*session)->FindTable(table);
    EXPECT_TRUE(number.ok()) << number.status();
    if (!number.ok()) return answer;
    std::vector<std::array<float, kDim>> rows(keys.size());
    const HostTableQuery query = {.table = *number,
                                  .keys = keys,
                                  .rows = std::as_writable_bytes(std::span(rows)),
                                  .status = {}};
    const absl::Status status = (*session)->Lookup(
        HostLookupRequest{.queries = {&query, 1}, .timeout = std::chrono::minutes(1)},
        &answer.counts);
    EXPECT_TRUE(status.ok()) << status;
    for (const auto& row : rows) {
      EXPECT_TRUE(std::all_of(row.begin(), row.end(), [&](float x) { return x == row[0]; }));
      answer.firsts.push_back(row[0]);
    }
    EXPECT_EQ(answer.counts.total(), keys.size());
    return answer;
  }
};

TEST_F(StoreTest, OpensOnlyWhatIsThere) {
  EXPECT_EQ(Store::Open(config_, OpenMode::kReadWrite).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(Store::Open(config_, OpenMode::kReadOnly).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(config_.store.path));
  const auto store = Open(OpenMode::kCreate);
  EXPECT_TRUE(store->Tables()->empty());
  EXPECT_EQ(store->NewSession("m", {}).status().code(), absl::StatusCode::kNotFound);
  config_.l2.preload = 2;
  EXPECT_EQ(Store::Open(config_, OpenMode::kReadOnly).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(StoreTest, RowsArePromotedAndCounted) {
  const auto store = Open(OpenMode::kCreate);
  ASSERT_TRUE(store->Import(Files("m/t", 100, 7)).ok());
  std::vector<Key> keys = Iota(101);
  for (const KeyStatus level : {KeyStatus::kHitL3, KeyStatus::kHitL2}) {
    const Answer answer = LookUp(*store, "m/t", keys);
    EXPECT_EQ(answer.counts[level], 100u);
    EXPECT_EQ(answer.counts[KeyStatus::kAbsent], 1u);
    EXPECT_EQ(answer.firsts[99], 7);
    EXPECT_EQ(answer.firsts[100], 0);
    ASSERT_TRUE(store->DrainPromotions(std::chrono::minutes(1)).ok());
  }
  const StoreStatistics statistics = store->Statistics();
  EXPECT_EQ(statistics.lookups, 2u);
  ASSERT_EQ(statistics.tables.size(), 1u);
  EXPECT_EQ(statistics.tables[0].name, "m/t");
  EXPECT_EQ(statistics.tables[0].keys[KeyStatus::kHitL3], 100u);
  EXPECT_EQ(statistics.tables[0].keys[KeyStatus::kHitL2], 100u);
  EXPECT_EQ(statistics.tables[0].l2.entries, 100u);
  EXPECT_TRUE(statistics.l3.writable);
  EXPECT_GT(statistics.l3.free_bytes, 0u);
  EXPECT_EQ(statistics.l3.background_errors, 0u);
  EXPECT_FALSE(Open(OpenMode::kReadOnly)->Statistics().l3.writable);
}

TEST_F(StoreTest, WithoutLevel2) {
  Import(Files("m/t", 10, 7));
  config_.l2.kind = L2Kind::kNone;
  const auto store = Open();
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(LookUp(*store, "m/t", Iota(10)).counts[KeyStatus::kHitL3], 10u);
}

// Catches: one pass over cold keys that empties level 2 of the rows that lookups use.
TEST_F(StoreTest, OnePassOverColdKeysLeavesTheHitRate) {
  Import(Files("m/t", 60'000, 7));
  config_.l2.bytes_max = uint64_t{1} << 19;
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
      hits += LookUp(*store, "m/t", keys).counts[KeyStatus::kHitL2];
      EXPECT_TRUE(store->DrainPromotions(std::chrono::seconds(30)).ok());
    }
    return static_cast<double>(hits) / (2000.0 * calls);
  };
  hit_rate(40);
  const double before = hit_rate(50);
  EXPECT_GT(before, 0.6);
  EXPECT_LT(before, 0.98) << "not all fit";
  for (Key first = 20'000; first < 60'000; first += 2000) {
    LookUp(*store, "m/t", Iota(2000, first));
    EXPECT_TRUE(store->DrainPromotions(std::chrono::seconds(30)).ok());
  }
  EXPECT_GT(hit_rate(50), before - 0.01);
  EXPECT_GT(store->Statistics().tables[0].l2.not_admitted, 30'000u);
}

// Catches: a level 2 that is not told how often a call asked for a key.
TEST_F(StoreTest, AKeyThatOneCallAsksForTwiceEntersAFullLevel2) {
  Import(Files("m/t", 60'000, 7));
  config_.l2.bytes_max = uint64_t{1} << 19;
  const auto store = Open();
  const auto ask = [&](const std::vector<Key>& keys) {
    const uint64_t hits = LookUp(*store, "m/t", keys).counts[KeyStatus::kHitL2];
    EXPECT_TRUE(store->DrainPromotions(std::chrono::seconds(30)).ok());
    return hits;
  };
  for (Key first = 0; first < 20'000; first += 2000) ask(Iota(2000, first));
  ASSERT_GT(store->Statistics().tables[0].l2.not_admitted, 0u) << "it is full";
  ask({50'000, 50'001, 50'000});
  EXPECT_EQ(ask({50'000}), 1u);
  EXPECT_EQ(ask({50'001}), 0u);
}

TEST_F(StoreTest, PreloadsAShareOfEveryTable) {
  Import(ModelFiles("m", {"a", "b"}, 10'000, 7));
  for (const double share : {0.0, 0.25, 1.0}) {
    config_.l2.preload = share;
    const auto store = Open();
    for (const TableStatistics& table : store->Statistics().tables)
      EXPECT_EQ(table.l2.entries, static_cast<uint64_t>(10'000 * share)) << table.name;
    EXPECT_EQ(LookUp(*store, "m/b", Iota(10'000)).counts[KeyStatus::kHitL2],
              static_cast<uint64_t>(10'000 * share));
  }
}

// As at start, new tables are filled before a lookup sees them.
TEST_F(StoreTest, PreloadsANewImportBeforeItIsServed) {
  config_.l2.preload = 1.0;
  Import(Files("m/t", 1000, 1));
  const auto store = Open();
  for (const float value : {2.0F, 3.0F}) {
    ASSERT_TRUE(store->Import(Files("m/t", 1000, value)).ok());
    const Answer answer = LookUp(*store, "m/t", Iota(1000));
    EXPECT_EQ(answer.counts[KeyStatus::kHitL2], 1000u);
    EXPECT_EQ(answer.firsts.front(), value);
  }
}

TEST_F(StoreTest, PreloadEndsWhereTheBudgetDoes) {
  Import(Files("m/t", 50'000, 7));
  config_.l2.preload = 1.0;
  config_.l2.bytes_max = uint64_t{1} << 20;
  const auto store = Open();
  const LevelStatistics level = store->Statistics().tables[0].l2;
  EXPECT_GT(level.entries, 1'000u);
  EXPECT_LT(level.entries, 50'000u);
  EXPECT_LE(level.bytes_used, uint64_t{1} << 20);
  EXPECT_EQ(level.evictions, 0u);
}

// Catches: a preload that ends with the first partition of the table that is full.
TEST_F(StoreTest, PreloadFillsLevel2) {
  Import(Files("m/t", 400'000, 7));
  config_.l2.preload = 1.0;
  config_.l2.bytes_max = uint64_t{14} << 20;
  const auto store = Open();
  const LevelStatistics level = store->Statistics().tables[0].l2;
  EXPECT_LT(level.entries, 400'000u);
  EXPECT_EQ(level.evictions, 0u);
  // No partition has room left: hardly any row enters that has been asked for once.
  LookUp(*store, "m/t", Iota(1000, 399'000));
  EXPECT_TRUE(store->DrainPromotions(std::chrono::seconds(30)).ok());
  EXPECT_LE(store->Statistics().tables[0].l2.insertions, level.insertions + 100);
}

TEST_F(StoreTest, BudgetsAreDividedAndOverridden) {
  Import(ModelFiles("m", {"a", "b", "c"}, 20'000, 7));
  config_.l2.bytes_max = uint64_t{3} << 20;
  config_.model = {
      {.name = "m",
       .table = {{.name = "b", .l2_bytes = uint64_t{1} << 20}, {.name = "c", .l2_share = 0.0}}}};
  {
    const auto store = Open();
    const std::vector<TableStatistics> tables = store->Statistics().tables;
    ASSERT_EQ(tables.size(), 3u);
    EXPECT_LE(tables[0].l2.bytes_max + tables[1].l2.bytes_max, uint64_t{3} << 20);
    EXPECT_GT(tables[0].l2.bytes_max, uint64_t{1} << 19);
    EXPECT_LE(tables[1].l2.bytes_max, uint64_t{1} << 20);
    EXPECT_EQ(tables[2].l2.bytes_max, 0u);
    EXPECT_EQ(LookUp(*store, "m/c", Iota(10)).counts[KeyStatus::kHitL3], 10u);
  }
  config_.model[0].table[0].l2_bytes = uint64_t{4} << 20;
  const absl::Status status = Store::Open(config_, OpenMode::kReadWrite).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("table 'b'"));
}

// Catches: a committed import whose lookups fail with RESOURCE_EXHAUSTED until a restart.
TEST_F(StoreTest, ANewTableIsServedAlsoWhereLevel2IsFull) {
  Import(Files("m/t", 50'000, 7));
  config_.l2.bytes_max = uint64_t{1} << 20;
  const auto store = Open();
  for (const std::string table : {"m/u", "other/t"}) {
    const auto report = store->Import(Files(table, 50'000, 8));
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(LookUp(*store, table, {3}).firsts[0], 8);
    EXPECT_EQ(LookUp(*store, "m/t", {3}).firsts[0], 7);
  }
  for (const TableStatistics& table : store->Statistics().tables) {
    const bool was_first = table.name == "m/t";
    EXPECT_EQ(table.l2.bytes_max > 0, was_first) << table.name;
  }
}

TEST_F(StoreTest, ModelsOfTheConfiguration) {
  Import(ModelFiles("m", {"a", "b", "c"}, 10, 1));
  Import(Files("other/t", 10, 1));
  config_.model = {{.name = "m", .tables = {"c", "a"}}};
  {
    const auto store = Open();
    const auto session = store->NewSession("m", {});
    ASSERT_TRUE(session.ok()) << session.status();
    const std::span<const TableSpec> tables = (*session)->tables();
    ASSERT_EQ(tables.size(), 2u);
    EXPECT_EQ(tables[0].name, "m/c");
    EXPECT_EQ(tables[1].name, "m/a");
    EXPECT_EQ((*session)->FindTable("m/b").status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(store->NewSession("other", {}).status().code(), absl::StatusCode::kNotFound);
  }
  config_.model[0].tables = {"a", "bb"};
  absl::Status status = Store::Open(config_, OpenMode::kReadWrite).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'bb'"));
  config_.model = {{.name = "mm"}};
  status = Store::Open(config_, OpenMode::kReadWrite).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("'mm'"));
}

TEST_F(StoreTest, SessionsSeeImportsAndDrops) {
  const auto store = Open(OpenMode::kCreate);
  ASSERT_TRUE(store->Import(ModelFiles("m", {"a", "b"}, 10, 1)).ok());
  EXPECT_EQ(LookUp(*store, "m/a", {3}).firsts[0], 1);
  ASSERT_TRUE(store->Import(Files("m/a", 10, 2)).ok());
  EXPECT_EQ(LookUp(*store, "m/a", {3}).firsts[0], 2);
  EXPECT_EQ(LookUp(*store, "m/b", {3}).firsts[0], 1);
  ASSERT_TRUE(store->Drop("m/a").ok());
  EXPECT_EQ((*store->NewSession("m", {}))->FindTable("m/a").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(store->Drop("m/a").code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(store->Drop("m/b").ok());
  EXPECT_EQ(store->NewSession("m", {}).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(StoreTest, ATableOfAnotherWidthIsRefusedByTableAndFile) {
  const ImportRequest wide = ModelFiles("m", {"a", "t"}, 10, 1, 8);
  const auto expect_refused = [&](const absl::Status& refused) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(wide.from + "/t: table 'm/t' exists with dim 4"));
  };
  ImportRequest request = wide;
  request.dim = 8;
  Import(Files("m/t", 10, 1));
  expect_refused(ImportTables(config_, request).status());
  expect_refused(Open()->Import(request).status());
}

TEST_F(StoreTest, LoadAllCommitsStagedImports) {
  Import(Files("m/t", 10, 1));
  const auto store = Open();
  const auto staged = ImportTables(config_, Files("m/t", 10, 2));
  ASSERT_TRUE(staged.ok()) << staged.status();
  EXPECT_TRUE(staged->staged);
  EXPECT_EQ(LookUp(*store, "m/t", {3}).firsts[0], 1);
  ASSERT_TRUE(store->models().LoadAll().ok());
  EXPECT_EQ(LookUp(*store, "m/t", {3}).firsts[0], 2);
  EXPECT_EQ(DropTable(config_, "m/t").code(), absl::StatusCode::kUnavailable);
}

// Catches: opening the store for writing first, which creates files.
TEST_F(StoreTest, DroppingATableThatIsNotThereChangesNoFile) {
  Import(Files("m/t", 10, 1));
  const auto files = [&] {
    std::map<std::string, std::filesystem::file_time_type> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(config_.store.path))
      found[entry.path()] = entry.last_write_time();
    return found;
  };
  const auto before = files();
  const absl::Status status = DropTable(config_, "m/tt");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("'m/t'"), absl::string_view::npos) << status;
  EXPECT_EQ(files(), before);
  EXPECT_TRUE(DropTable(config_, "m/t").ok());
}

TEST_F(StoreTest, ATableThatIsOnlyStagedCanBeDropped) {
  {
    const auto store = Open(OpenMode::kCreate);
    ASSERT_TRUE(ImportTables(config_, Files("m/t", 10, 2))->staged);
  }
  EXPECT_TRUE(DropTable(config_, "m/t").ok());
  EXPECT_TRUE(Open()->Tables()->empty());
}

TEST_F(StoreTest, AReaderCatchesUpWithLoadAll) {
  Import(Files("m/t", 10, 1));
  const auto reader = Open(OpenMode::kReadOnly);
  Import(Files("m/t", 10, 2));
  Import(Files("m/u", 10, 3));
  EXPECT_EQ(LookUp(*reader, "m/t", {3}).firsts[0], 1);
  ASSERT_TRUE(reader->models().LoadAll().ok());
  EXPECT_EQ(LookUp(*reader, "m/t", {3}).firsts[0], 2);
  EXPECT_EQ(LookUp(*reader, "m/u", {3}).firsts[0], 3);
  EXPECT_EQ(reader->Import(Files("m/t", 10, 4)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Catches: a level 2 that answers with the old row.
TEST_F(StoreTest, AReaderSeesWrittenRowsOfTheSameImportAfterLoadAll) {
  Import(ModelFiles("m", {"t", "u"}, 10, 1));
  const auto reader = Open(OpenMode::kReadOnly);
  EXPECT_EQ(LookUp(*reader, "m/t", {3}).firsts[0], 1);
  EXPECT_EQ(LookUp(*reader, "m/u", {3}).firsts[0], 1);
  ASSERT_TRUE(reader->DrainPromotions(std::chrono::minutes(1)).ok());
  EXPECT_EQ(LookUp(*reader, "m/t", {3}).counts[KeyStatus::kHitL2], 1u);
  {
    const auto writer = OpenDurableStore(config_.store, OpenMode::kReadWrite, StoreRole::kCommand);
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::array<float, kDim> row;
    row.fill(7);
    const Key key = 3;
    const HostRows rows = {.data = std::as_writable_bytes(std::span(row)).data(),
                           .row_count = 1,
                           .row_bytes = sizeof(row),
                           .stride_bytes = sizeof(row)};
    const auto table = (*writer)->OpenTable("m/t");
    ASSERT_TRUE((*table)->Write({.upserts = {.keys = {&key, 1}, .rows = rows}}).ok());
  }
  EXPECT_EQ(LookUp(*reader, "m/t", {3}).firsts[0], 1);
  ASSERT_TRUE(reader->models().LoadAll().ok());
  EXPECT_EQ(LookUp(*reader, "m/t", {3}).firsts[0], 7);
  EXPECT_EQ(LookUp(*reader, "m/t", {4}).firsts[0], 1);
  EXPECT_EQ(LookUp(*reader, "m/u", {3}).counts[KeyStatus::kHitL2], 1u);  // kept its levels
}

// Depends on build and machine: no GPU support, GPU support without a GPU, or a GPU.
TEST_F(StoreTest, ASessionOnADeviceThatIsNotThere) {
  Import(Files("m/t", 10, 1));
  const auto store = Open();
  const absl::Status support = BuiltInDeviceCacheFactory().Support();
  const absl::Status status = store->NewSession("m", {.device = 1023}).status();
  EXPECT_EQ(status.code(), support.ok() ? absl::StatusCode::kUnavailable : support.code());
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 1023: "));
  config_.l1 = {.devices_auto = false, .devices = {1023}};
  const absl::Status refused = Store::Open(config_, OpenMode::kReadOnly).status();
  EXPECT_EQ(refused.code(), status.code());
  EXPECT_THAT(std::string(refused.message()), HasSubstr("l1.devices: device 1023: "));
}

TEST_F(StoreTest, DefaultRows) {
  const TableSpec spec = {.name = "m/t", .dim = 2, .dtype = Dtype::kBfloat16, .default_row = {}};
  EXPECT_EQ(DefaultRow(spec), (std::vector<float>{0, 0}));
  TableSpec own = spec;  // 1.0 and -2.0 as bfloat16, little-endian
  own.default_row = {std::byte{0x80}, std::byte{0x3f}, std::byte{0x00}, std::byte{0xc0}};
  EXPECT_EQ(DefaultRow(own), (std::vector<float>{1, -2}));
}

// Catches: a lookup that sees tables of two imports, or a row that returns to an older one.
TEST_F(StoreTest, ACallNeverSeesAMixOfTwoImports) {
  const auto store = Open(OpenMode::kCreate);
  ASSERT_TRUE(store->Import(ModelFiles("m", {"a", "b"}, 64, 1)).ok());
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> mixed = 0, went_back = 0, calls = 0;
  std::thread reader([&] {
    auto session = store->NewSession("m", {});
    ASSERT_TRUE(session.ok()) << session.status();
    const std::vector<Key> keys = Iota(64);
    std::array<std::vector<std::array<float, kDim>>, 2> rows;
    std::array<HostTableQuery, 2> queries;
    for (size_t t = 0; t < 2; ++t) {
      rows[t].resize(keys.size());
      queries[t] = {.table = *(*session)->FindTable(t == 0 ? "m/a" : "m/b"),
                    .keys = keys,
                    .rows = std::as_writable_bytes(std::span(rows[t])),
                    .status = {}};
    }
    float newest = 0;
    while (!stop.load()) {
      ASSERT_TRUE(
          (*session)
              ->Lookup(HostLookupRequest{.queries = queries, .timeout = std::chrono::minutes(1)},
                       nullptr)
              .ok());
      const float seen = rows[0][0][0];
      for (const auto& table : rows) {
        for (const auto& row : table)
          mixed += std::count_if(row.begin(), row.end(), [&](float x) { return x != seen; });
      }
      went_back += seen < newest;
      newest = std::max(newest, seen);
      ++calls;
    }
  });
  for (int version = 2; version <= 12; ++version) {
    EXPECT_TRUE(store->Import(ModelFiles("m", {"a", "b"}, 64, static_cast<float>(version))).ok());
    // At least one lookup between two switches, even if the reader rarely runs.
    const uint64_t before = calls;
    EXPECT_TRUE(AwaitCondition([&] { return calls > before || HasFatalFailure(); }));
  }
  stop = true;
  reader.join();
  EXPECT_EQ(mixed, 0u);
  EXPECT_EQ(went_back, 0u);
  EXPECT_EQ(LookUp(*store, "m/b", {5}).firsts[0], 12);
}

}  // namespace
}  // namespace hps
