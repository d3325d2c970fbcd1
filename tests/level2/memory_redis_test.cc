// Memory in front of real Redis servers: the contract of the lossy tier, and what each part does
// while the other one forgets or is down.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/macros.h"
#include "l2_layered/layered_tier.h"
#include "l2_memory/memory_tier.h"
#include "l2_redis/test_redis_contract.h"
#include "testing/await.h"
#include "tier/redis_tier.h"

namespace hps {
namespace {

constexpr uint64_t kTable = 7;
constexpr size_t kRowBytes = 64;

std::unique_ptr<LossyTier> TierOn(const RedisConfig& config) {
  auto redis = MakeRedisTier(config);
  HPS_CHECK(redis.ok());
  return MakeLayeredTier(MakeMemoryTier({.huge_pages = false}), std::move(redis->tier));
}

INSTANTIATE_TEST_SUITE_P(MemoryRedis, LossyTierContract,
                         ::testing::Values(RedisContractFactory("standalone", StandaloneRedis,
                                                                TierOn, /*counts=*/true),
                                           RedisContractFactory("cluster", ClusterOfRedis, TierOn,
                                                                /*counts=*/true)),
                         LossyTierName);

std::vector<Key> Keys(size_t count) {
  std::vector<Key> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = static_cast<Key>(i);
  return keys;
}

// A table whose near part has room for some of the rows only.
class MemoryRedisTest : public ::testing::Test {
 protected:
  static constexpr size_t kKeys = 4000;

  void Open(const RedisConfig& config) {
    tier_ = TierOn(config);
    const uint64_t budget = MemoryTierBytesFor(kKeys / 10, kRowBytes, {.huge_pages = false});
    table_ = *tier_->OpenTable(ContractSpec(kRowBytes), 1, budget);
    ASSERT_TRUE(table_->has_near_part());
  }
  void Insert() {
    ContractRows rows(kTable, Keys(kKeys), kRowBytes, version_);
    ASSERT_TRUE(table_->Insert(rows.batch(), epoch_).ok());
  }
  void Update() {
    ASSERT_TRUE(table_->RaiseWatermarks(Keys(kKeys), ++epoch_, kNoDeadline).ok());
    ContractRows rows(kTable, Keys(kKeys), kRowBytes, ++version_);
    ASSERT_TRUE(table_->Update(rows.batch()).ok());
  }
  // The number of hits. Every one is of the newest version.
  size_t Fetch(bool near_only = false) {
    const std::vector<Key> keys = Keys(kKeys);
    std::vector<std::byte> rows(kKeys * kRowBytes);
    std::vector<FetchOutcome> outcomes(kKeys);
    const auto counts = table_->Fetch({.keys = keys,
                                       .rows = {rows.data(), kKeys, kRowBytes, kRowBytes},
                                       .outcomes = outcomes,
                                       .near_only = near_only,
                                       .epoch = epoch_},
                                      kNoDeadline);
    EXPECT_TRUE(counts.ok()) << counts.status();
    size_t hits = 0;
    for (size_t i = 0; i < kKeys; ++i) {
      if (outcomes[i] != FetchOutcome::kHit) continue;
      ++hits;
      EXPECT_TRUE(StampedRow::Matches(kTable, keys[i], version_, {&rows[i * kRowBytes], kRowBytes}))
          << "key " << i << " is not of version " << version_;
    }
    return hits;
  }
  testing::AssertionResult Recovers() {
    return AwaitCondition([&] {
      Insert();
      return HasFatalFailure() || Fetch() == kKeys;
    });
  }

  std::unique_ptr<LossyTier> tier_;
  std::unique_ptr<LossyTable> table_;
  ApplyEpoch epoch_ = 0;
  Version version_ = 1;
};

TEST_F(MemoryRedisTest, RedisHasWhatMemoryHasNoRoomFor) {
  TestRedis redis({});
  Open(redis.Config());
  Insert();
  const size_t near = Fetch(/*near_only=*/true);
  EXPECT_GT(near, 0u);
  EXPECT_LT(near, kKeys / 2);
  EXPECT_EQ(Fetch(), kKeys);
  Update();
  EXPECT_EQ(Fetch(), kKeys);
  EXPECT_GT(Fetch(/*near_only=*/true), 0u);
}

// Tables with a part in memory, and one without: what memory lacks of all of them is asked for
// together.
TEST_F(MemoryRedisTest, OneRoundTripForAllTables) {
  constexpr size_t kTables = 26;
  TestRedis redis({});
  tier_ = TierOn(redis.Config());
  std::vector<std::unique_ptr<LossyTable>> tables;
  for (size_t t = 0; t < kTables; ++t) {
    const TableSpec spec = ContractSpec(kRowBytes, "m/t" + std::to_string(t));
    tables.push_back(*tier_->OpenTable(spec, t + 1, t == 0 ? 0 : uint64_t{1} << 20));
    EXPECT_EQ(tables[t]->has_near_part(), t != 0);
    ContractRows rows(t, {1, 2}, kRowBytes, 3);
    ASSERT_TRUE(tables[t]->Insert(rows.batch(), 0).ok());
  }
  const auto fetch = [&](const std::vector<Key>& keys, size_t hits) {
    std::vector<std::unique_ptr<ContractAnswer>> answers;
    std::vector<TableFetch> fetches;
    for (const auto& table : tables) {
      answers.push_back(std::make_unique<ContractAnswer>(keys, kRowBytes));
      fetches.push_back({.table = table.get(), .batch = answers.back()->batch()});
    }
    redis.TakeReads();
    tier_->Fetch(fetches, kNoDeadline);
    const uint64_t reads = redis.TakeReads()[0];
    for (size_t t = 0; t < kTables; ++t) {
      answers[t]->Take(fetches[t].counts);
      EXPECT_EQ(answers[t]->CountOf(FetchOutcome::kHit), hits);
      EXPECT_TRUE(answers[t]->IsRowOf(0, t, 3)) << t;
    }
    return reads;
  };
  fetch({1, 2, 3}, 2);
  EXPECT_EQ(fetch({1, 2, 3}, 2), 1u);
  EXPECT_EQ(fetch({1, 2}, 2), 1u);  // of the table without a part in memory
  tables[0] = *tier_->OpenTable(ContractSpec(kRowBytes, "m/t0"), 100, uint64_t{1} << 20);
  ContractRows rows(0, {1, 2}, kRowBytes, 3);
  ASSERT_TRUE(tables[0]->Insert(rows.batch(), 0).ok());
  EXPECT_EQ(fetch({1, 2}, 2), 0u);  // memory has all
}

TEST_F(MemoryRedisTest, MemoryKeepsItsRowsWhenRedisForgets) {
  TestRedis redis({});
  Open(redis.Config());
  Insert();
  redis.Ask(0, {"FLUSHALL"});
  const size_t near = Fetch();
  EXPECT_GT(near, 0u);
  EXPECT_LT(near, kKeys / 2);
  ASSERT_TRUE(Recovers());
}

TEST_F(MemoryRedisTest, MemoryAnswersWhileRedisIsDown) {
  TestRedis redis({});
  RedisConfig config = redis.Config();
  config.timeout = std::chrono::milliseconds(300);
  Open(config);
  ASSERT_TRUE(Recovers());
  for (int round = 0; round < 3; ++round) {
    redis.Kill(0);
    EXPECT_GT(Fetch(), 0u);
    Update();
    EXPECT_GT(Fetch(), 0u);
    redis.Start(0);
    Fetch();
    Update();
    ASSERT_TRUE(Recovers());
  }
}

// Rows of memory may outlive changes that Redis has lost, and the other way round.
TEST_F(MemoryRedisTest, NoRowGoesBackWhileMastersAreReplaced) {
  TestRedis redis(
      {.count = 6, .cluster = true, .replicas = 1, .settings = {"cluster-node-timeout=3000"}});
  RedisConfig config = redis.Config();
  config.timeout = std::chrono::milliseconds(300);
  Open(config);
  ASSERT_TRUE(Recovers());
  for (size_t master = 0; master < 2; ++master) {
    Update();
    redis.Kill(master);
    for (int call = 0; call < 10; ++call) {
      Fetch();
      Update();
      Insert();
    }
    redis.Start(master);
    ASSERT_TRUE(Recovers());
  }
}

}  // namespace
}  // namespace hps
