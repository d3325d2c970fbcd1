// Level 2 in memory and then on real Redis servers: the contract of the lossy tier, and what
// lookups and changes make of a part that forgets or is down.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/macros.h"
#include "l2_memory/memory_tier.h"
#include "l2_redis/test_redis_contract.h"
#include "query/session_factory.h"
#include "testing/await.h"
#include "testing/contracts/lossy_list.h"
#include "tier/redis_tier.h"
#include "update/test_update_world.h"

namespace hps {
namespace {

std::unique_ptr<LossyTier> TierOn(const RedisConfig& config) {
  auto redis = MakeRedisTier(config);
  HPS_CHECK(redis.ok());
  return std::make_unique<ListedTier>(MakeMemoryTier({.huge_pages = false}),
                                      std::move(redis->tier));
}

INSTANTIATE_TEST_SUITE_P(MemoryRedis, LossyTierContract,
                         ::testing::Values(RedisContractFactory("standalone", StandaloneRedis,
                                                                TierOn, /*counts=*/true,
                                                                /*budgeted=*/true),
                                           RedisContractFactory("cluster", ClusterOfRedis, TierOn,
                                                                /*counts=*/true,
                                                                /*budgeted=*/true)),
                         LossyTierName);

// A served table whose part in memory has room for some of the rows only. Level 3 has all, in
// memory.
class MemoryRedisTest : public ::testing::Test {
 protected:
  static constexpr size_t kKeys = 4000;
  static constexpr uint32_t kDim = 16;
  static constexpr size_t kRowBytes = kDim * sizeof(float);

  MemoryRedisTest() {
    for (size_t i = 0; i < kKeys; ++i) keys_.push_back(static_cast<Key>(i));
    fetch_ = *WorkerPool::Create({.name = "fetch", .thread_count = 2});
    promote_ = *WorkerPool::Create({.name = "promote"});
    // Nothing degrades because a machine is busy.
    sessions_ = *SessionFactory::Create({.fetch_executor = fetch_.get(),
                                         .promote_executor = promote_.get(),
                                         .timeout = std::chrono::minutes(1)});
    registry_ = std::make_unique<ModelRegistry>(sessions_->epoch_domain(), *promote_);
    applier_ = std::make_unique<TableApplier>("m/t", *registry_, store_);
  }
  ~MemoryRedisTest() override {
    session_.reset();
    live_ = nullptr;
    EXPECT_TRUE(registry_->FindOrAdd("m").Publish({}).ok());
    fetch_.reset();
    promote_.reset();
  }

  void Open(const RedisConfig& config) {
    redis_ = *MakeRedisTier(config);
    const uint64_t budget = MemoryTierBytesFor(kKeys / 10, kRowBytes, {.huge_pages = false});
    LiveTable::Parts parts;
    parts.l3 = *store_.OpenTable("m/t");
    const TableSpec spec = parts.l3->spec();
    parts.l2.push_back({.table = *memory_->OpenTable(spec, 1, budget)});
    parts.l2.push_back({.table = *redis_.tier->OpenTable(spec, 1, 0), .tier = redis_.tier.get()});
    live_ = std::make_shared<LiveTable>(std::move(parts));
    LiveModel& model = registry_->FindOrAdd("m");
    ASSERT_TRUE(model.Publish({live_}).ok());
    session_ = *sessions_->NewSession(model, {});
    Update();
  }
  // A direct change of all rows.
  void Update() {
    const std::vector<float> elements(kKeys * kDim, ++value_);
    std::vector<std::byte> rows(elements.size() * sizeof(float));
    std::memcpy(rows.data(), elements.data(), rows.size());
    ASSERT_TRUE(applier_
                    ->ApplyDirect({.dim = kDim, .keys = keys_, .rows = rows},
                                  DeadlineAfter(RealClock(), std::chrono::minutes(1)))
                    .ok());
  }
  // Looks all keys up; every row is the newest one. Returns how many came from level 2.
  size_t Lookup() {
    std::vector<std::byte> rows(kKeys * kRowBytes);
    const HostTableQuery query{.table = {0}, .keys = keys_, .rows = rows};
    LookupCounts counts;
    EXPECT_TRUE(session_->Lookup({.queries = {&query, 1}}, &counts).ok());
    EXPECT_EQ(counts[KeyStatus::kHitL2] + counts[KeyStatus::kHitL3], kKeys);
    ExpectNewest(rows);
    EXPECT_TRUE(sessions_->DrainPromotions(std::chrono::minutes(1)).ok());
    return counts[KeyStatus::kHitL2];
  }
  size_t InMemory() {
    std::vector<std::byte> rows(kKeys * kRowBytes);
    std::vector<FetchOutcome> outcomes(kKeys);
    const auto counts = live_->l2()[0].table().Fetch(
        {.keys = keys_, .rows = {rows.data(), kKeys, kRowBytes, kRowBytes}, .outcomes = outcomes},
        kNoDeadline);
    EXPECT_TRUE(counts.ok()) << counts.status();
    for (size_t i = 0; i < kKeys; ++i) {
      if (outcomes[i] == FetchOutcome::kHit)
        ExpectNewest(std::span(rows).subspan(i * kRowBytes, kRowBytes));
    }
    return counts->hits;
  }
  testing::AssertionResult Recovers() {
    return AwaitCondition([&] { return HasFailure() || Lookup() == kKeys; });
  }

 private:
  void ExpectNewest(std::span<const std::byte> rows) const {
    for (size_t at = 0; at < rows.size() && !HasFailure(); at += sizeof(float)) {
      float element = 0;
      std::memcpy(&element, &rows[at], sizeof(element));
      EXPECT_EQ(element, value_) << "row " << at / kRowBytes;
    }
  }

  const std::unique_ptr<LossyTier> memory_ = MakeMemoryTier({.huge_pages = false});
  RedisTier redis_;
  OneTableStore store_{{.name = "m/t", .dim = kDim}};
  std::vector<Key> keys_;
  float value_ = 0;
  std::unique_ptr<SessionFactory> sessions_;
  std::unique_ptr<ModelRegistry> registry_;
  std::unique_ptr<TableApplier> applier_;
  std::shared_ptr<LiveTable> live_;
  std::unique_ptr<LookupSession> session_;
  std::unique_ptr<Executor> promote_;
  std::unique_ptr<Executor> fetch_;
};

TEST_F(MemoryRedisTest, RedisHasWhatMemoryHasNoRoomFor) {
  TestRedis redis({});
  Open(redis.Config());
  EXPECT_EQ(Lookup(), 0u);
  const size_t in_memory = InMemory();
  EXPECT_GT(in_memory, 0u);
  EXPECT_LT(in_memory, kKeys / 2);
  EXPECT_EQ(Lookup(), kKeys);
  Update();
  EXPECT_EQ(Lookup(), kKeys);
  EXPECT_GT(InMemory(), 0u);
}

TEST_F(MemoryRedisTest, MemoryKeepsItsRowsWhenRedisForgets) {
  TestRedis redis({});
  Open(redis.Config());
  ASSERT_TRUE(Recovers());
  redis.Ask(0, {"FLUSHALL"});
  const size_t from_level_2 = Lookup();
  EXPECT_GT(from_level_2, 0u);
  EXPECT_LT(from_level_2, kKeys / 2);
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
    EXPECT_GT(Lookup(), 0u);
    Update();
    EXPECT_GT(Lookup(), 0u);
    redis.Start(0);
    Lookup();
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
      Lookup();
      Update();
    }
    redis.Start(master);
    ASSERT_TRUE(Recovers());
  }
}

}  // namespace
}  // namespace hps
