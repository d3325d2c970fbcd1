// A store and a Redis that HugeCTR HPS filled: its tables are imported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "l2_redis/test_hugectr.h"
#include "node/test_store_files.h"

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

  // The first element of each row.
  std::vector<float> LookUp(Store& store, const std::string& table, const std::vector<Key>& keys) {
    auto session = store.NewSession(table.substr(0, table.find('/')), {});
    EXPECT_TRUE(session.ok()) << session.status();
    std::vector<float> rows(keys.size() * kTestDim);
    const HostTableQuery query = {.table = *(*session)->FindTable(table),
                                  .keys = keys,
                                  .rows = std::as_writable_bytes(std::span(rows)),
                                  .status = {}};
    LookupCounts counts;
    const absl::Status status = (*session)->Lookup(
        HostLookupRequest{.queries = {&query, 1}, .timeout = std::chrono::minutes(1)}, &counts);
    EXPECT_TRUE(status.ok()) << status;
    std::vector<float> firsts;
    for (size_t i = 0; i < keys.size(); ++i) firsts.push_back(rows[i * kTestDim]);
    return firsts;
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

}  // namespace
}  // namespace hps
