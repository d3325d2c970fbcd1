// A server that is slow, or says nothing, holds a change or an insertion no longer than configured;
// what could not be changed in time is never answered again.
#include <gtest/gtest.h>

#include <vector>

#include "l2_redis/test_proxy.h"
#include "l2_redis/test_redis.h"
#include "l2_redis/test_watched.h"
#include "testing/await.h"

namespace hps {
namespace {

constexpr size_t kManyKeys = 40'000;  // ten steps of a write
constexpr auto kDelay = std::chrono::milliseconds(500);
constexpr auto kWriteTimeout = std::chrono::seconds(1);  // of two steps, however fast the machine
constexpr auto kTimeout = std::chrono::seconds(60);      // of each wait
// Of one call at a server that never answers: far above kWriteTimeout, and below kTimeout.
constexpr auto kBound = std::chrono::seconds(40);

class RedisWriteTimeTest : public ::testing::Test {
 protected:
  RedisWriteTimeTest() {
    RedisConfig config = redis_.Config();
    config.nodes = {proxy_.address()};
    // The slow server answers each time: only the time of the whole call ends.
    config.timeout = kTimeout;
    Open(config);
    EXPECT_EQ(table_->Insert(rows_.batch(), 0)->inserted, kManyKeys);
    config.write_timeout = kWriteTimeout;
    Open(config);
  }

  void Open(const RedisConfig& config) {
    tier_ = std::move(MakeRedisTier(config)->tier);
    table_ = *tier_->OpenTable(ContractSpec(kRowBytes), 1, 0);
  }
  size_t Hits() {
    const ContractFetch fetch(*table_, rows_.keys(), kRowBytes);
    EXPECT_TRUE(fetch.status().ok());
    return rows_.keys().size() - fetch.CountOf(FetchOutcome::kMiss);
  }
  // Inserts without a delay until all rows are held.
  ::testing::AssertionResult Fill() {
    return AwaitCondition([&] {
      EXPECT_TRUE(table_->Insert(rows_.batch(), 0).ok());
      return HasFailure() || Hits() == kManyKeys;
    });
  }

  TestRedis redis_{{}};
  TestProxy proxy_{redis_.addresses()[0]};
  ContractRows rows_{kTable, Keys(kManyKeys), kRowBytes, 1};
  std::unique_ptr<LossyTier> tier_;
  std::unique_ptr<LossyTable> table_;
};

TEST_F(RedisWriteTimeTest, AnInsertionAtASlowServerEnds) {
  proxy_.Set({.delay = kDelay});
  const auto counts = table_->Insert(rows_.batch(), 0);
  ASSERT_TRUE(counts.ok());
  EXPECT_GT(counts->dropped, kManyKeys / 2) << "it went on after its time";
  EXPECT_EQ(counts->dropped + counts->inserted + counts->held, kManyKeys);
  proxy_.Set({});
  ASSERT_TRUE(Fill());
}

TEST_F(RedisWriteTimeTest, AChangeAtASlowServerEnds) {
  ASSERT_TRUE(Fill());
  proxy_.Set({.delay = kDelay});
  ContractRows newer(kTable, rows_.keys(), kRowBytes, 2);
  EXPECT_TRUE(table_->Update(newer.batch()).ok());
  proxy_.Set({});
  const ContractFetch fetch(*table_, rows_.keys(), kRowBytes);
  EXPECT_GT(fetch.CountOf(FetchOutcome::kMiss), kManyKeys / 2) << "it went on after its time";
  for (size_t i = 0; i < kManyKeys; ++i) {
    if (fetch.outcome(i) == FetchOutcome::kMiss) continue;
    ASSERT_TRUE(fetch.IsRowOf(i, kTable, 2)) << "key " << i << " was not changed";
  }
  ASSERT_TRUE(Fill());
  proxy_.Set({.delay = kDelay});
  EXPECT_TRUE(table_->Erase(rows_.keys()).ok());
  EXPECT_GT(redis_.Ask(0, {"DBSIZE"}).integer, int64_t{kManyKeys / 2})
      << "it went on after its time";
  proxy_.Set({});
  EXPECT_EQ(Hits(), 0u);
}

// With a time-out for each wait that is far above that of the whole call.
TEST_F(RedisWriteTimeTest, AServerThatSwallowsEverything) {
  ASSERT_TRUE(Fill());
  proxy_.Set({.swallows = true});
  ContractRows newer(kTable, rows_.keys(), kRowBytes, 2);
  TimePoint begun = RealClock().Now();
  EXPECT_TRUE(table_->Update(newer.batch()).ok());
  EXPECT_LT(RealClock().Now() - begun, kBound);
  begun = RealClock().Now();
  EXPECT_EQ(table_->Insert(newer.batch(), 0)->inserted, 0u);
  EXPECT_LT(RealClock().Now() - begun, kBound);
  begun = RealClock().Now();
  EXPECT_TRUE(table_->Erase(rows_.keys()).ok());
  EXPECT_LT(RealClock().Now() - begun, kBound);
  begun = RealClock().Now();
  EXPECT_TRUE(table_->Clear().ok());
  EXPECT_LT(RealClock().Now() - begun, kBound);
  // Insertions that were under way have ended: a change waits for none.
  EXPECT_TRUE(table_->RaiseWatermarks(rows_.keys(), 1, RealClock().Now() + kBound).ok());
  proxy_.Set({});
  EXPECT_EQ(Hits(), 0u);
}

}  // namespace
}  // namespace hps
