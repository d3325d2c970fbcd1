// Rows that are read from the replicas of a cluster.
#include <gtest/gtest.h>

#include <string>

#include "l2_redis/test_redis.h"
#include "l2_redis/test_watched.h"
#include "testing/await.h"

namespace hps {
namespace {

constexpr size_t kMasters = 3;

class RedisReplicasTest : public ::testing::Test {
 protected:
  RedisConfig Config() const {
    RedisConfig config = redis_.Config();
    config.replica_reads = true;
    return config;
  }
  bool HasRead(size_t server) {
    return redis_.Ask(server, {"INFO", "commandstats"}).text.find("cmdstat_mget:") !=
           std::string::npos;
  }
  // A cluster that is new tells of its replicas only after a while.
  ::testing::AssertionResult ReadFromReplicas(Watched& table) {
    return AwaitCondition([&] {
      table.Fetch();
      bool have_read = true;
      for (size_t server = kMasters; server < 2 * kMasters; ++server) have_read &= HasRead(server);
      return have_read;
    });
  }
  // Without an insertion: until the replicas have the rows.
  static ::testing::AssertionResult AllAreHeld(Watched& table) {
    return AwaitCondition([&] { return table.Fetch() == kKeys; });
  }

  TestRedis redis_{{.count = 2 * kMasters, .cluster = true, .replicas = 1}};
};

TEST_F(RedisReplicasTest, ReplicasAnswerAndMastersTakeChanges) {
  Watched table(Config());
  ASSERT_TRUE(table.Recovers());
  ASSERT_TRUE(ReadFromReplicas(table));
  // A row of before a change counts as a miss, once the change has been made.
  for (int round = 0; round < 20; ++round) {
    table.Update();
    table.Fetch();
  }
  EXPECT_TRUE(AllAreHeld(table));
}

TEST_F(RedisReplicasTest, WithoutTheSettingMastersAnswer) {
  Watched table(redis_.Config());
  ASSERT_TRUE(table.Recovers());
  for (size_t server = kMasters; server < 2 * kMasters; ++server) EXPECT_FALSE(HasRead(server));
}

// A replica that lacks a change has not lost it: the master has the rows, and they stay valid.
TEST_F(RedisReplicasTest, AReplicaThatLagsCostsNoRows) {
  Watched table(Config());
  ASSERT_TRUE(table.Recovers());
  ASSERT_TRUE(ReadFromReplicas(table));
  EXPECT_EQ(table.Update(), kKeys);
  ASSERT_TRUE(AllAreHeld(table));
  for (size_t server = kMasters; server < 2 * kMasters; ++server) {
    redis_.Ask(server, {"CONFIG", "SET", "replica-read-only", "no"});
    redis_.Ask(server, {"FLUSHALL"});
  }
  EXPECT_TRUE(AllAreHeld(table));
}

TEST_F(RedisReplicasTest, AReplicaThatHangsIsBypassed) {
  Watched table(Quick(Config()));
  ASSERT_TRUE(table.Recovers());
  ASSERT_TRUE(ReadFromReplicas(table));
  redis_.Pause(kMasters);
  EXPECT_TRUE(AllAreHeld(table));  // the master answers
  table.Update();
  redis_.Resume(kMasters);
  EXPECT_TRUE(table.Recovers());
}

TEST_F(RedisReplicasTest, AReplicaTakesOver) {
  Watched table(Quick(Config()));
  ASSERT_TRUE(table.Recovers());
  ASSERT_TRUE(ReadFromReplicas(table));
  table.Update();
  for (size_t server = 0; server < redis_.addresses().size(); ++server)
    redis_.Ask(server, {"CONFIG", "SET", "cluster-node-timeout", "3000"});
  redis_.Kill(0);
  for (int call = 0; call < 20; ++call) {
    table.Fetch();
    table.Update();
    table.Insert();
  }
  EXPECT_TRUE(table.Recovers());
}

}  // namespace
}  // namespace hps
