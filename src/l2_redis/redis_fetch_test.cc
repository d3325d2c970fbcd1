// Several tables on the same servers: one call costs one round trip to each server.
#include "l2_redis/redis_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/macros.h"
#include "l2_redis/test_redis.h"
#include "testing/contracts/lossy_tables.h"
#include "tier/redis_tier.h"

namespace hps {
namespace {

using testing::Each;

constexpr size_t kTables = 26;

// A few keys of each table: their commands fit into one packet.
std::vector<std::vector<Key>> SomeKeys() {
  return std::vector<std::vector<Key>>(kTables, {1, 2, 3, 4, 5, 6, 7, 8});
}

void ExpectOneReadForAllTables(TestRedis& redis) {
  const auto tier = std::move(MakeRedisTier(redis.Config())->tier);
  ContractTables tables(*tier, std::vector<size_t>(kTables, 32), 10, 0);
  tables.ExpectAnswers(SomeKeys(), /*keeps=*/true);
  redis.TakeReads();
  tables.ExpectAnswers(SomeKeys(), /*keeps=*/true);
  EXPECT_THAT(redis.TakeReads(), Each(1u));
  for (size_t t = 0; t < kTables; ++t) ContractFetch(tables[t], {1, 2, 3, 4, 5, 6}, 32);
  EXPECT_THAT(redis.TakeReads(), testing::Contains(testing::Gt(kTables / 2)));
}

TEST(RedisFetchTest, OneRoundTripForAllTablesOfAServer) {
  TestRedis redis({});
  ExpectOneReadForAllTables(redis);
}

TEST(RedisFetchTest, OneRoundTripToEachMasterOfACluster) {
  TestRedis redis({.count = 3, .cluster = true});
  ExpectOneReadForAllTables(redis);
}

// With and without an import id.
TEST(RedisFetchTest, OneRoundTripForTablesOfBothKinds) {
  TestRedis redis({});
  const RedisTier redis_tier = *MakeRedisTier(redis.Config());
  std::vector<std::unique_ptr<LossyTable>> tables;
  for (size_t t = 0; t < kTables; ++t) {
    TableInfo info = {.spec = ContractSpec(32, "m/t" + std::to_string(t)), .incarnation = t + 1};
    if (t % 2 == 0) {
      info.import_id = "v1";
      tables.push_back((*redis_tier.open_shared({info}, true)).table);
    } else {
      tables.push_back(*redis_tier.tier->OpenTable(info.spec, info.incarnation, 0));
    }
    ContractRows rows_of_table(t, {1, 2}, 32, 0);
    ASSERT_TRUE(tables[t]->Insert(rows_of_table.batch(), 0).ok());
  }
  for (const bool counted : {false, true}) {
    std::vector<std::unique_ptr<ContractAnswer>> answers;
    std::vector<TableFetch> fetches;
    for (const auto& table : tables) {
      answers.push_back(std::make_unique<ContractAnswer>(std::vector<Key>{1, 2, 3}, 32));
      fetches.push_back({.table = table.get(), .batch = answers.back()->batch()});
    }
    redis.TakeReads();
    redis_tier.tier->Fetch(fetches, kNoDeadline);
    if (counted) {
      EXPECT_THAT(redis.TakeReads(), Each(1u));
    }
    for (size_t t = 0; t < kTables; ++t) {
      answers[t]->Take(fetches[t].counts);
      EXPECT_TRUE(answers[t]->IsRowOf(0, t, 0) && answers[t]->IsRowOf(1, t, 0)) << t;
      EXPECT_EQ(answers[t]->outcome(2), FetchOutcome::kMiss);
    }
  }
}

// One server that ends costs the keys that it has, of every table.
TEST(RedisFetchTest, AServerThatEndsCostsItsKeysOnly) {
  TestRedis redis({.count = 3, .cluster = true});
  const auto tier = std::move(MakeRedisTier(redis.Config())->tier);
  ContractTables tables(*tier, std::vector<size_t>(kTables, 32), 100, 0);
  redis.Kill(1);
  std::vector<Key> keys(100);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<Key>(i);
  for (int call = 0; call < 3; ++call) {
    const auto answers = tables.Fetch(std::vector<std::vector<Key>>(kTables, keys));
    for (const auto& answer : answers) {
      ASSERT_TRUE(answer->status().ok());
      EXPECT_GT(answer->CountOf(FetchOutcome::kHit), 30u);
      EXPECT_GT(answer->CountOf(FetchOutcome::kMiss), 5u);
    }
  }
}

}  // namespace
}  // namespace hps
