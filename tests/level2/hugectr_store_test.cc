// A store and a Redis that HugeCTR HPS filled: its tables are imported, or read as level 2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "l2_redis/test_hugectr.h"
#include "model/test_store_files.h"
#include "model/tier_factory.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kHugectrPartitions = 8;

class HugectrStoreTest : public StoreFilesTest {
 protected:
  HugectrStoreTest() : StoreFilesTest(uint64_t{64} << 20) {}

  // Puts a row of which every element is `value` where HugeCTR puts it.
  void Put(const std::string& table, Key key, float value) {
    const std::string hash = HugectrHashName(table, HugectrPartition(key, kHugectrPartitions));
    std::string row;
    for (uint32_t i = 0; i < kTestDim; ++i) row.append(AsText(std::as_bytes(std::span(&value, 1))));
    redis_.Ask(HugectrTestOwner(redis_, hash), {"HSET", hash, HugectrTestKey(key), row});
  }

  ImportRequest FromRedis(const std::string& name) const {
    return {.name = name, .from = "redis://" + redis_.addresses()[1]};
  }

  // The first element of each row, and how many came from which level.
  std::vector<float> LookUp(Store& store, const std::string& table, const std::vector<Key>& keys,
                            LookupCounts* counts = nullptr) {
    auto session = store.NewSession(table.substr(0, table.find('/')), {});
    EXPECT_TRUE(session.ok()) << session.status();
    std::vector<float> rows(keys.size() * kTestDim);
    const HostTableQuery query = {.table = *(*session)->FindTable(table),
                                  .keys = keys,
                                  .rows = std::as_writable_bytes(std::span(rows)),
                                  .status = {}};
    LookupCounts own;
    const absl::Status status = (*session)->Lookup(
        HostLookupRequest{.queries = {&query, 1}, .timeout = std::chrono::minutes(1)},
        counts == nullptr ? &own : counts);
    EXPECT_TRUE(status.ok()) << status;
    std::vector<float> firsts;
    for (size_t i = 0; i < keys.size(); ++i) firsts.push_back(rows[i * kTestDim]);
    return firsts;
  }

  // Imports keys 0 to 99 of m/t from Redis under the id that ReadRedisAsLevelTwo names.
  void ImportWithId() {
    for (Key key = 0; key < 100; ++key) Put("m/t", key, 1);
    ImportRequest request = FromRedis("m/t");
    request.import_id = "as-exported";
    request.update_start = UpdateStart();
    Import(request);
  }
  void ReadRedisAsLevelTwo() {
    config_.l2.kind = L2Kind::kRedis;
    config_.l2.redis = redis_.Config();
    config_.l2.redis.hugectr_import_id = "as-exported";
    config_.lookup.timeout = 2 * config_.l2.redis.timeout;
  }

  TestRedis redis_{{.count = 3, .cluster = true}};
};

TEST_F(HugectrStoreTest, TheTablesOfAModelAreImported) {
  for (Key key = -20; key < 20; ++key) {
    Put("m/t2", key, static_cast<float>(key));
    Put("m/t10", key, static_cast<float>(100 + key));
  }
  Put("other/t", 1, 1);
  for (const TableFormat format : {TableFormat::kAuto, TableFormat::kHugectrRedis}) {
    ImportRequest request = FromRedis("m");
    request.format = format;
    const auto report = ImportTables(config_, request);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->tables.size(), 2u);
    EXPECT_EQ(report->tables[0].info.spec.name, "m/t2");
    EXPECT_EQ(report->tables[1].info.spec.name, "m/t10");
    EXPECT_EQ(report->tables[0].info.spec.dim, kTestDim);
    EXPECT_EQ(report->tables[0].info.row_count, 40u);
    EXPECT_EQ(report->tables[0].bytes_read, 40u * (8 + 4 * kTestDim));
  }
  const auto store = Store::Open(config_, OpenMode::kReadOnly);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ(LookUp(**store, "m/t2", {-20, 0, 19, 20}), (std::vector<float>{-20, 0, 19, 0}));
  EXPECT_EQ(LookUp(**store, "m/t10", {-20, 0, 19, 20}), (std::vector<float>{80, 100, 119, 0}));
}

TEST_F(HugectrStoreTest, AnImportThatCanNotBeChangesNothing) {
  Put("m/t", 1, 1);
  const auto error = [&](const ImportRequest& request) {
    const auto report = ImportTables(config_, request);
    EXPECT_FALSE(std::filesystem::exists(config_.store.path));
    return report.status();
  };
  ImportRequest request = FromRedis("m/t");
  request.dim = 3;
  EXPECT_THAT(std::string(error(request).message()),
              HasSubstr(request.from + ": table 'm/t': expected dim 3, found 4"));
  request = FromRedis("m/u");
  EXPECT_EQ(error(request).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(error(request).message()), HasSubstr("Redis has: m/t"));
  request = FromRedis("n");
  EXPECT_THAT(std::string(error(request).message()), HasSubstr("no table of model 'n'"));
  request = FromRedis("m/t");
  request.partitions = HugectrPartition(1, kHugectrPartitions);
  ASSERT_GT(*request.partitions, 0u);
  EXPECT_THAT(std::string(error(request).message()), HasSubstr("Give --partitions"));
  request.partitions = kHugectrPartitionsMax + 1;
  EXPECT_THAT(std::string(error(request).message()), HasSubstr("partitions: expected 1 to 4096"));
  request = Files("m/t", 5, 1);
  request.partitions = 8;
  EXPECT_THAT(std::string(error(request).message()), HasSubstr("hugectr-redis only"));
}

// A hash with rows of an earlier number of partitions may have old rows.
TEST_F(HugectrStoreTest, AHashOfAnotherNumberOfPartitionsIsNotImported) {
  for (Key key = 0; key < 20; ++key) Put("m/t", key, 1);
  Key left = 0;
  while (HugectrPartition(left, 4) == HugectrPartition(left, kHugectrPartitions)) ++left;
  const std::string hash = HugectrHashName("m/t", HugectrPartition(left, 4));
  const std::string row(kTestDim * sizeof(float), 'x');
  redis_.Ask(HugectrTestOwner(redis_, hash), {"HSET", hash, HugectrTestKey(left), row});
  const ImportRequest request = FromRedis("m/t");
  const auto report = ImportTables(config_, request);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(report.status().message()),
              HasSubstr(request.from + ", table 'm/t', hash '" + hash + "': key " +
                        std::to_string(left) + " is in partition"));
  EXPECT_FALSE(std::filesystem::exists(config_.store.path));
}

// Rows come from Redis where it has them, from the store where not, and nothing is written.
TEST_F(HugectrStoreTest, RedisIsAReadOnlyLevelTwoOfOneImport) {
  ImportWithId();
  for (Key key = 0; key < 50; ++key) Put("m/t", key, 2);  // so that the level can be told
  for (Key key = 50; key < 100; ++key) {
    const std::string hash = HugectrHashName("m/t", HugectrPartition(key, kHugectrPartitions));
    redis_.Ask(HugectrTestOwner(redis_, hash), {"HDEL", hash, HugectrTestKey(key)});
  }
  ReadRedisAsLevelTwo();
  const auto store = Store::Open(config_, OpenMode::kReadWrite);
  ASSERT_TRUE(store.ok()) << store.status();
  std::vector<float> expected(100, 1);
  std::fill_n(expected.begin(), 50, 2.0F);
  for (int round = 0; round < 2; ++round) {
    LookupCounts counts;
    EXPECT_EQ(LookUp(**store, "m/t", Iota(100), &counts), expected);
    EXPECT_EQ(counts[KeyStatus::kHitL2], 50u);
    EXPECT_EQ(counts[KeyStatus::kHitL3], 50u);
    ASSERT_TRUE((*store)->DrainPromotions(std::chrono::minutes(1)).ok());
  }
  const std::vector<Key> keys = {1};
  const std::vector<float> row(kTestDim, 9);
  const TableUpdate change = {
      .table = "m/t", .keys = keys, .rows = std::as_bytes(std::span(row)), .dim = kTestDim};
  EXPECT_EQ((*store)->Apply(change, std::chrono::minutes(1)).code(),
            absl::StatusCode::kFailedPrecondition);
  // Another import has other rows, which those in Redis must not replace.
  ASSERT_TRUE((*store)->Import(Files("m/t", 100, 3)).ok());
  EXPECT_EQ(LookUp(**store, "m/t", Iota(100)), std::vector<float>(100, 3));
}

// An update stream was read between the import and the setting.
TEST_F(HugectrStoreTest, ATableThatHasChangedIsAnsweredFromTheStore) {
  ImportWithId();
  {
    const auto durable = OpenDurableStore(config_.store, OpenMode::kReadWrite, StoreRole::kCommand);
    ASSERT_TRUE(durable.ok()) << durable.status();
    const auto table = (*durable)->OpenTable("m/t");
    ASSERT_TRUE(table.ok()) << table.status();
    const std::vector<Key> keys = {1};
    std::vector<float> row(kTestDim, 9);
    const std::vector<Version> versions = {VersionAt(1, 0)};
    const StreamPosition position = {.offset = 1};
    const HostRows rows = {.data = std::as_writable_bytes(std::span(row)).data(),
                           .row_count = 1,
                           .row_bytes = kTestDim * sizeof(float),
                           .stride_bytes = kTestDim * sizeof(float)};
    ASSERT_TRUE((*table)
                    ->Write({.upserts = {.keys = keys, .rows = rows, .versions = versions},
                             .positions = {&position, 1}})
                    .ok());
  }
  ReadRedisAsLevelTwo();
  const auto store = Store::Open(config_, OpenMode::kReadWrite);
  ASSERT_TRUE(store.ok()) << store.status();
  LookupCounts counts;
  EXPECT_EQ(LookUp(**store, "m/t", {0, 1, 2}, &counts), (std::vector<float>{1, 9, 1}));
  EXPECT_EQ(counts[KeyStatus::kHitL3], 3u);
}

}  // namespace
}  // namespace hps
