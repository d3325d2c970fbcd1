// Level 2 on the rows of HugeCTR HPS, in real servers.
#include "l2_redis/hugectr_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/bytes.h"
#include "l2_redis/hugectr_names.h"
#include "l2_redis/test_hugectr.h"
#include "l2_redis/test_redis.h"
#include "testing/contracts/lossy_rows.h"
#include "tier/redis_tier.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

constexpr char kReadTable[] = "m/t";
constexpr char kImportId[] = "as-exported";
constexpr uint32_t kReadPartitions = 8;

RedisConfig ConfigFor(const TestRedis& redis) {
  RedisConfig config = redis.Config();  // without `partitions`: as many as HugeCTR's by default
  config.hugectr_import_id = kImportId;
  return config;
}

// Puts the keys where HugeCTR puts them.
void Fill(TestRedis& redis, const std::vector<Key>& keys) {
  for (const Key key : keys) {
    const std::string hash = HugectrHashName(kReadTable, HugectrPartition(key, kReadPartitions));
    redis.Ask(HugectrTestOwner(redis, hash),
              {"HSET", hash, HugectrTestKey(key), HugectrTestRow(key)});
  }
}

TableInfo InfoOf(const std::string& import_id, uint32_t dim = 4, Dtype dtype = Dtype::kFloat32) {
  return {.spec = {.name = kReadTable, .dim = dim, .dtype = dtype},
          .incarnation = 5,
          .import_id = import_id};
}

// The rows of `keys`, "" for a miss.
std::vector<std::string> Fetch(LossyTable& table, const std::vector<Key>& keys) {
  std::vector<std::byte> rows(keys.size() * 16);
  std::vector<FetchOutcome> outcomes(keys.size());
  const auto counts = table.Fetch(
      {.keys = keys,
       .rows = {.data = rows.data(), .row_count = keys.size(), .row_bytes = 16, .stride_bytes = 16},
       .outcomes = outcomes},
      kNoDeadline);
  EXPECT_TRUE(counts.ok()) << counts.status();
  std::vector<std::string> found;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string_view row = AsText(std::span<const std::byte>(rows).subspan(i * 16, 16));
    found.emplace_back(outcomes[i] == FetchOutcome::kHit ? row : "");
  }
  return found;
}

void ExpectReads(TestRedis& redis) {
  std::vector<Key> held, keys;
  std::vector<std::string> expected;
  for (Key key = -3000; key < 3000; ++key) {
    keys.push_back(key);
    const bool is_held = key % 7 == 0;
    if (is_held) held.push_back(key);
    expected.push_back(is_held ? HugectrTestRow(key) : "");
  }
  Fill(redis, held);
  const RedisTier tier = *MakeRedisTier(ConfigFor(redis));
  const auto opened = tier.open_shared({InfoOf(kImportId)}, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->shared, nullptr);
  EXPECT_EQ(Fetch(*opened->table, keys), expected);
  EXPECT_EQ(Fetch(*opened->table, {7, 8, 7}),
            (std::vector<std::string>{HugectrTestRow(7), "", HugectrTestRow(7)}));
}

TEST(HugectrTableTest, ReadsTheRowsOfOneServer) {
  TestRedis redis({});
  ExpectReads(redis);
}

TEST(HugectrTableTest, ReadsTheRowsOfACluster) {
  TestRedis redis({.count = 3, .cluster = true});
  ExpectReads(redis);
}

// Catches: a server that is bypassed because one of its names has a value of another type.
TEST(HugectrTableTest, AValueOfAnotherTypeCostsItsPartitionOnly) {
  TestRedis redis({});
  std::vector<Key> keys;
  for (Key key = 0; key < 200; ++key) keys.push_back(key);
  Fill(redis, keys);
  const RedisTier tier = *MakeRedisTier(ConfigFor(redis));
  const auto opened = tier.open_shared({InfoOf(kImportId)}, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  redis.Ask(0, {"SET", HugectrHashName(kReadTable, 3), "x"});
  std::vector<std::string> expected;
  for (const Key key : keys)
    expected.push_back(HugectrPartition(key, kReadPartitions) == 3 ? "" : HugectrTestRow(key));
  for (int round = 0; round < 2; ++round) EXPECT_EQ(Fetch(*opened->table, keys), expected);
  EXPECT_FALSE(tier.statistics().nodes[0].bypassed);
  EXPECT_EQ(tier.statistics().nodes[0].failures, 0u);
}

TEST(HugectrTableTest, WritesNothing) {
  TestRedis redis({});
  Fill(redis, {1, 2, 3});
  const RedisTier tier = *MakeRedisTier(ConfigFor(redis));
  const auto opened = tier.open_shared({InfoOf(kImportId)}, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  LossyTable& table = *opened->table;
  ContractRows rows(0, {1, 10, 11}, 16, 1);
  const auto inserted = table.Insert(rows.batch(), 0);
  ASSERT_TRUE(inserted.ok()) << inserted.status();
  EXPECT_EQ(inserted->inserted, 0u);
  const std::vector<Key> keys = {1, 2};
  constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
  EXPECT_EQ(table.Update(rows.batch()).status().code(), kRefused);
  EXPECT_EQ(table.Erase(keys).status().code(), kRefused);
  EXPECT_EQ(table.RaiseWatermarks(keys, 1, kNoDeadline).code(), kRefused);
  EXPECT_EQ(table.Clear().code(), kRefused);
  EXPECT_EQ(
      Fetch(table, {1, 2, 3, 10, 11}),
      (std::vector<std::string>{HugectrTestRow(1), HugectrTestRow(2), HugectrTestRow(3), "", ""}));
  int64_t fields = 0;
  for (uint32_t part = 0; part < kReadPartitions; ++part)
    fields += redis.Ask(0, {"HLEN", HugectrHashName(kReadTable, part)}).integer;
  EXPECT_EQ(fields, 3);
}

// Rows of another import, of another width or type would be wrong answers.
TEST(HugectrTableTest, OnlyTheTableOfTheImportIsRead) {
  TestRedis redis({});
  Fill(redis, {1});
  const RedisTier tier = *MakeRedisTier(ConfigFor(redis));
  for (const TableInfo& info :
       {InfoOf("another"), InfoOf(""), InfoOf(kImportId, 4, Dtype::kFloat16)}) {
    EXPECT_EQ(tier.open_shared({info}, true).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
  const absl::Status other = tier.tier->OpenTable(InfoOf("").spec, 5, 0).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("hugectr_import_id = 'as-exported'"));
  redis.Ask(0, {"HSET", HugectrHashName(kReadTable, HugectrPartition(2, kReadPartitions)),
                HugectrTestKey(2), std::string(20, 'x')});
  const auto opened = tier.open_shared({InfoOf(kImportId)}, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(Fetch(*opened->table, {1, 2}), (std::vector<std::string>{HugectrTestRow(1), ""}));
}

TEST(HugectrTableTest, PartitionsCanBeSet) {
  TestRedis redis({});
  RedisConfig config = ConfigFor(redis);
  config.partitions = 3;
  for (const Key key : {1, 2, 3}) {
    redis.Ask(0, {"HSET", HugectrHashName(kReadTable, HugectrPartition(key, 3)),
                  HugectrTestKey(key), HugectrTestRow(key)});
  }
  const RedisTier tier = *MakeRedisTier(config);
  const auto opened = tier.open_shared({InfoOf(kImportId)}, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(Fetch(*opened->table, {1, 2, 3}),
            (std::vector<std::string>{HugectrTestRow(1), HugectrTestRow(2), HugectrTestRow(3)}));
}

// Its rows in level 3 may be newer than those in Redis.
TEST(HugectrTableTest, ATableThatHasChangedIsNotRead) {
  TestRedis redis({});
  const RedisTier tier = *MakeRedisTier(ConfigFor(redis));
  TableInfo info = InfoOf(kImportId);
  info.positions = {{.partition = 0, .offset = 1}};
  const absl::Status changed = tier.open_shared({info}, true).status();
  EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(changed.message()), HasSubstr("under another import id"));
}

TEST(HugectrTableTest, AServerThatIsGoneIsAMiss) {
  TestRedis redis({});
  Fill(redis, {1});
  const RedisTier tier = *MakeRedisTier(ConfigFor(redis));
  const auto opened = tier.open_shared({InfoOf(kImportId)}, true);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(Fetch(*opened->table, {1}), (std::vector<std::string>{HugectrTestRow(1)}));
  redis.Kill(0);
  EXPECT_EQ(Fetch(*opened->table, {1}), (std::vector<std::string>{""}));
}

}  // namespace
}  // namespace hps
