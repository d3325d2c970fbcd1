// Servers that end, forget, refuse, or say garbage: a table never answers a row that is wrong, or
// older than one that was written before.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "l2_redis/redis_client.h"
#include "l2_redis/redis_table.h"
#include "l2_redis/test_proxy.h"
#include "l2_redis/test_redis.h"
#include "l2_redis/test_shared_nodes.h"
#include "l2_redis/test_watched.h"
#include "testing/await.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

TEST(RedisFaultsTest, AServerThatEndsAndStarts) {
  TestRedis redis({});
  Watched table(Quick(redis.Config()));
  ASSERT_TRUE(table.Recovers());
  for (int round = 0; round < 3; ++round) {
    redis.Kill(0);
    EXPECT_EQ(table.Fetch(), 0u);
    table.Update();
    EXPECT_TRUE(table.statistics().nodes[0].bypassed);
    redis.Start(0);
    EXPECT_TRUE(table.Recovers());
    EXPECT_FALSE(table.statistics().nodes[0].bypassed);
  }
}

// The server comes back with a snapshot from before the last change: the next call must not see it,
// although neither a look-up nor a change has met the server while it was down.
TEST(RedisFaultsTest, ARestartWithAnOldSnapshotShowsNoOldRow) {
  TestRedis redis({});
  Watched table(redis.Config());
  ASSERT_TRUE(table.Recovers());
  redis.Ask(0, {"SAVE"});
  EXPECT_EQ(table.Update(), kKeys);
  redis.Kill(0);
  redis.Start(0);
  EXPECT_EQ(redis.Ask(0, {"DBSIZE"}).integer, static_cast<int64_t>(kKeys));
  EXPECT_EQ(table.Fetch(), 0u);
  EXPECT_TRUE(table.Recovers());
}

// The server is synchronized from another one that lacks the last change, as Sentinel does with an
// old master. It keeps its process and its connections, and it answers reads meanwhile.
TEST(RedisFaultsTest, AServerThatBecomesAnOldReplicaShowsNoOldRow) {
  TestRedis redis({.count = 2});
  RedisConfig config = redis.Config();
  config.nodes.resize(1);
  Watched table(config);
  ASSERT_TRUE(table.Recovers());
  const auto follow = [&redis](size_t server, size_t master) {
    const std::string& address = redis.addresses()[master];
    redis.Ask(server, {"REPLICAOF", "127.0.0.1", address.substr(address.rfind(':') + 1)});
    return AwaitCondition([&] {
      return redis.Ask(server, {"INFO", "replication"}).text.find("master_link_status:up") !=
             std::string::npos;
    });
  };
  EXPECT_EQ(table.Update(), kKeys);
  ASSERT_TRUE(follow(1, 0));
  redis.Ask(1, {"REPLICAOF", "NO", "ONE"});
  EXPECT_EQ(table.Update(), kKeys);
  EXPECT_EQ(table.Fetch(), kKeys);
  ASSERT_TRUE(follow(0, 1));
  EXPECT_EQ(table.Fetch(), 0u);
  redis.Ask(0, {"REPLICAOF", "NO", "ONE"});
  EXPECT_TRUE(table.Recovers());
  // The next change comes before anything is read, and has a higher number than the lost one.
  ASSERT_TRUE(follow(1, 0));
  redis.Ask(1, {"REPLICAOF", "NO", "ONE"});
  EXPECT_EQ(table.Update(), kKeys);
  ASSERT_TRUE(follow(0, 1));
  redis.Ask(0, {"REPLICAOF", "NO", "ONE"});
  table.UpdateAnotherKey();
  EXPECT_EQ(table.Fetch(), 0u);
  EXPECT_TRUE(table.Recovers());
}

// Without the number of the last change, nothing says that the rows are current.
TEST(RedisFaultsTest, ALostNumberOfAChangeCostsTheRowsOfItsPartition) {
  TestRedis redis({});
  Watched table(redis.Config());
  Watched other(table);
  ASSERT_TRUE(table.Recovers());
  ASSERT_TRUE(other.Recovers());
  EXPECT_EQ(table.Update(), kKeys);
  EXPECT_EQ(table.Fetch(), kKeys);
  const Reply names = redis.Ask(0, {"KEYS", "*"});
  ASSERT_GT(names.elements.size(), kKeys);
  const auto number = std::ranges::min_element(names.elements, {},
                                               [](const Reply& name) { return name.text.size(); });
  redis.Ask(0, {"DEL", number->text});
  EXPECT_EQ(table.Fetch(), 0u);
  EXPECT_EQ(other.Fetch(), kKeys);
  EXPECT_TRUE(table.Recovers());
}

// On most machines the name has an IPv6 address first, which refuses.
TEST(RedisFaultsTest, AHostNameWithAnAddressThatRefuses) {
  TestRedis redis({});
  RedisConfig config = redis.Config();
  const std::string& address = redis.addresses()[0];
  config.nodes = {"localhost" + address.substr(address.rfind(':'))};
  Watched table(config);
  EXPECT_TRUE(table.Recovers());
}

TEST(RedisFaultsTest, AServerOfAClusterThatIsNotCalledOne) {
  TestRedis redis({.count = 3, .cluster = true});
  RedisConfig config = redis.Config();
  config.nodes.resize(1);
  config.cluster = false;
  Watched table(config);
  table.Insert();
  EXPECT_TRUE(table.statistics().nodes[0].bypassed);
}

TEST(RedisFaultsTest, AClusterThatWasNeverReached) {
  TestRedis redis({.count = 3, .cluster = true});
  RedisConfig config = Quick(redis.Config());
  for (size_t server = 0; server < 3; ++server) redis.Kill(server);
  Watched table(config);
  EXPECT_EQ(table.Fetch(), 0u);
  const auto nodes = table.statistics().nodes;
  EXPECT_FALSE(nodes.empty());
  EXPECT_TRUE(std::ranges::all_of(nodes, [](const auto& node) { return node.bypassed; }));
}

TEST(RedisFaultsTest, ServersThatForget) {
  TestRedis redis({});
  Watched table(redis.Config());
  ASSERT_TRUE(table.Recovers());
  redis.Ask(0, {"FLUSHALL"});
  EXPECT_EQ(table.Fetch(), 0u);
  EXPECT_TRUE(table.Recovers());
  redis.Ask(0, {"SCRIPT", "FLUSH"});
  EXPECT_EQ(table.Update(), kKeys);
  EXPECT_EQ(table.Fetch(), kKeys);
  // The server ends the idle connections.
  redis.Ask(0, {"CLIENT", "KILL", "TYPE", "normal"});
  EXPECT_EQ(table.Fetch(), kKeys);
}

// A row that something else has written under a row's name is neither answered nor in the way.
TEST(RedisFaultsTest, AForeignValueIsNoRow) {
  TestRedis redis({});
  Watched table(redis.Config());
  ASSERT_TRUE(table.Recovers());
  const Reply names = redis.Ask(0, {"KEYS", "*"});
  ASSERT_EQ(names.elements.size(), kKeys);
  redis.Ask(0, {"SET", names.elements[5].text, std::string(12 + kRowBytes, 'x')});
  redis.Ask(0, {"SET", names.elements[6].text, "y"});
  EXPECT_EQ(table.Fetch(), kKeys - 2);
  EXPECT_TRUE(table.Recovers());
}

// Catches: a script that fails because of one value, and a server that is bypassed for it.
TEST(RedisFaultsTest, AChangeReplacesWhatIsNoRow) {
  TestRedis redis({});
  Watched table(redis.Config());
  ASSERT_TRUE(table.Recovers());
  const Reply names = redis.Ask(0, {"KEYS", "*"});
  ASSERT_EQ(names.elements.size(), kKeys);
  for (size_t i = 0; i < 14; ++i)
    redis.Ask(0, {"SET", names.elements[10 * i].text, std::string(i, 'x')});
  for (size_t i = 200; i < 205; ++i) {
    redis.Ask(0, {"DEL", names.elements[i].text});
    redis.Ask(0, {"LPUSH", names.elements[i].text, "x"});
  }
  EXPECT_GE(table.Update(), kKeys - 2) << "an empty value is none, one of 13 bytes may be newer";
  EXPECT_FALSE(table.statistics().nodes[0].bypassed);
  EXPECT_EQ(table.statistics().nodes[0].failures, 0u);
  EXPECT_GE(table.Fetch(), kKeys - 2);
  EXPECT_TRUE(table.Recovers());

  // The number of a change, which has the shortest name.
  const Reply after = redis.Ask(0, {"KEYS", "*"});
  const auto number = std::ranges::min_element(after.elements, {},
                                               [](const Reply& name) { return name.text.size(); });
  redis.Ask(0, {"DEL", number->text});
  redis.Ask(0, {"LPUSH", number->text, "x"});
  table.Update();
  EXPECT_EQ(table.statistics().nodes[0].failures, 0u);
  EXPECT_TRUE(table.Recovers());
}

// Cuts some rows behind their nonce, and puts lists in the place of others.
constexpr std::string_view kCutRows = R"(
for i, name in ipairs(redis.call('KEYS', '*')) do
  if i % 3 == 0 and redis.call('STRLEN', name) >= 60 then
    local cut = string.sub(redis.call('GET', name), 1, 8 + i % 16)
    redis.call('DEL', name)
    redis.call(i % 2 == 0 and 'SET' or 'LPUSH', name, cut)
  end
end
return 0
)";

// The same of a table that nodes share.
TEST(RedisFaultsTest, SharedRowsThatAreCut) {
  for (const bool is_cluster : {false, true}) {
    TestRedis redis({.count = is_cluster ? size_t{3} : size_t{1}, .cluster = is_cluster});
    RedisConfig config = redis.Config();
    config.partitions = 8;
    shared_nodes::Node node(config, "v1");
    node.BeginStream();
    const std::vector<Key> keys = shared_nodes::AllKeys();
    node.Promote(keys);
    ASSERT_EQ(node.Check(keys), keys.size());
    const auto cut_rows = [&redis] {
      for (size_t server = 0; server < redis.addresses().size(); ++server)
        redis.Ask(server, {"EVAL", kCutRows, "0"});
    };
    cut_rows();
    EXPECT_GT(node.Promote(keys), 0u) << "a value that is no row is replaced";
    EXPECT_EQ(node.statistics().failures, 0u);
    EXPECT_EQ(node.Check(keys), keys.size());
    cut_rows();
    shared_nodes::Stream stream;
    for (const Key key : keys) stream.Publish(key);
    for (size_t partition = 0; partition < shared_nodes::kPartitions; ++partition)
      while (node.Apply(stream, partition, 100)) continue;
    EXPECT_EQ(node.statistics().failures, 0u);
    node.Promote(keys);
    EXPECT_EQ(node.Check(keys), keys.size());
  }
}

TEST(RedisFaultsTest, MaxMemoryIsReached) {
  TestRedis redis({});
  Watched table(redis.Config());
  ASSERT_TRUE(table.Recovers());
  redis.Ask(0, {"CONFIG", "SET", "maxmemory", "1"});
  EXPECT_EQ(table.Fetch(), kKeys);
  EXPECT_EQ(table.Update(), 0u);  // no room for new values: the rows are gone
  EXPECT_EQ(table.Fetch(), 0u);
  EXPECT_EQ(table.Insert(), 0u);
  EXPECT_EQ(table.Fetch(), 0u);
  for (const char* policy : {"allkeys-lru", "allkeys-random", "volatile-ttl"}) {
    redis.Ask(0, {"CONFIG", "SET", "maxmemory-policy", policy});
    table.Insert();
    table.Update();
    table.Fetch();
  }
  redis.Ask(0, {"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_TRUE(table.Recovers());
}

TEST(RedisFaultsTest, RowsExpire) {
  TestRedis redis({});
  RedisConfig config = redis.Config();
  config.expire_after = std::chrono::seconds(1000);
  Watched table(config);
  ASSERT_TRUE(table.Recovers());
  EXPECT_EQ(table.Update(), kKeys);
  EXPECT_EQ(table.Fetch(), kKeys);
  const Reply names = redis.Ask(0, {"KEYS", "*"});
  const int64_t left = redis.Ask(0, {"TTL", names.elements[0].text}).integer;
  EXPECT_GT(left, 900);
  EXPECT_LE(left, 1000);
}

TEST(RedisFaultsTest, APasswordThatIsWrongAndChanges) {
  TestRedis redis({.settings = {"requirepass=secret"}});
  TestDirectory directory;
  RedisConfig config = Quick(redis.Config());
  config.password_file = directory.path() + "/password";
  const auto write = [&config](const std::string& password) {
    std::ofstream(config.password_file) << password << "\n";
  };
  Watched table(config);
  EXPECT_EQ(table.Insert(), 0u);  // there is no such file
  write("wrong");
  EXPECT_EQ(table.Fetch(), 0u);
  write("secret");
  EXPECT_TRUE(table.Recovers());
  config.user = "default";
  Watched with_user(config);
  EXPECT_TRUE(with_user.Recovers());
}

TEST(RedisFaultsTest, RepliesThatAreDamaged) {
  TestRedis redis({});
  TestProxy proxy(redis.addresses()[0]);
  RedisConfig config = Quick(redis.Config());
  config.nodes = {proxy.address()};
  Watched table(config);
  ASSERT_TRUE(table.Recovers());
  const auto harm = [&](const TestProxy::Harm& what) {
    proxy.Set(what);
    table.Fetch();
    table.Update();
    EXPECT_EQ(table.Fetch(), 0u);
    proxy.Set({});
    EXPECT_TRUE(table.Recovers());
  };
  for (const char* garbage :
       {"HTTP/1.1 200 OK\r\n\r\n", "*1000000000\r\n", "*3\r\n:1\r\n:1\r\n:1\r\n", "$-1\r\n",
        "+OK\r\n+OK\r\n", "-LOADING wait\r\n", "-MOVED 1 x:1\r\n", "*2000\r\n$1000000000\r\n"}) {
    harm({.instead = garbage});
  }
  for (const size_t bytes : {1, 5, 100, 10'000}) harm({.cut_after = bytes});
  harm({.stall_after = 5'000});
}

// An answer that is cut anywhere: what has arrived may be used, and nothing is mixed up later.
TEST(RedisFaultsTest, AReplyCutAtManyPlaces) {
  TestRedis redis({});
  TestProxy proxy(redis.addresses()[0]);
  RedisConfig config = redis.Config();
  config.nodes = {proxy.address()};
  for (size_t cut = 1; cut < 4000; cut += 97) {
    Watched table(config);
    table.Insert();
    proxy.Set({.cut_after = cut});
    table.Fetch();
    EXPECT_TRUE(table.statistics().nodes[0].bypassed) << cut;
    proxy.Set({});
    table.Fetch();  // asks the server only if its rest is over by now
  }
}

TEST(RedisFaultsTest, ASlowServerIsBypassed) {
  TestRedis redis({});
  RedisConfig config = Quick(redis.Config());
  Watched table(config);
  ASSERT_TRUE(table.Recovers());
  redis.Pause(0);
  const TimePoint begun = RealClock().Now();
  EXPECT_EQ(table.Fetch(), 0u);
  EXPECT_GE(RealClock().Now() - begun, config.timeout);
  // After each kRest, one call tries the server again. The others do not ask it.
  int64_t tries = 1;
  for (int bypassed = 0; bypassed < 10;) {
    const uint64_t failures = table.statistics().failures;
    EXPECT_EQ(table.Fetch(), 0u);
    if (table.statistics().failures == failures) {
      ++bypassed;
      continue;
    }
    ++tries;
    ASSERT_LE(tries, 1 + (RealClock().Now() - begun) / CircuitBreaker::kRest);
  }
  redis.Resume(0);
  EXPECT_TRUE(table.Recovers());
}

TEST(RedisFaultsTest, AMasterWithoutReplicaEnds) {
  TestRedis redis({.count = 3, .cluster = true});
  Watched table(redis.Config());
  ASSERT_TRUE(table.Recovers());
  redis.Kill(1);
  table.Fetch();
  EXPECT_GT(table.Fetch(), kKeys / 3);  // the other two have theirs
  table.Update();
  EXPECT_GT(table.Fetch(), kKeys / 3);
  redis.Start(1);
  EXPECT_TRUE(table.Recovers());
}

// Catches: slots that had no owner when they were learnt, and are never learnt again.
TEST(RedisFaultsTest, AServerDoesNotKnowWhoHasSlots) {
  TestRedis redis({.count = 3, .cluster = true});
  RedisConfig config = redis.Config();
  config.nodes.resize(1);
  // Until their owner tells server 0 again.
  ASSERT_EQ(redis.Ask(0, {"CLUSTER", "DELSLOTSRANGE", "5462", "10922"}).text, "OK");
  Watched table(config);
  EXPECT_TRUE(table.Recovers());
}

// Catches: a server that has left the cluster, whose answer takes the owners of all slots away.
TEST(RedisFaultsTest, AServerHasLeftTheCluster) {
  TestRedis redis({.count = 3, .cluster = true});
  TestRedis left({.count = 1, .cluster = true});
  ASSERT_EQ(left.Ask(0, {"CLUSTER", "RESET", "HARD"}).text, "OK");
  RedisConfig config = redis.Config();
  config.replica_reads = true;  // the slots are learnt again and again, from each node in turn
  config.nodes.push_back(left.Config().nodes[0]);
  Watched table(config);
  ASSERT_TRUE(table.Recovers());
  const uint64_t learnt = table.statistics().slot_maps_learnt;
  while (table.statistics().slot_maps_learnt < learnt + 5) ASSERT_EQ(table.Fetch(), kKeys);
}

// The replica lacks what the master had not passed on: its rows are not asked for.
TEST(RedisFaultsTest, AReplicaTakesOver) {
  TestRedis redis(
      {.count = 6, .cluster = true, .replicas = 1, .settings = {"cluster-node-timeout=3000"}});
  Watched table(Quick(redis.Config()));
  ASSERT_TRUE(table.Recovers());
  for (size_t master = 0; master < 2; ++master) {
    table.Update();
    redis.Kill(master);
    for (int call = 0; call < 20; ++call) {
      table.Fetch();
      table.Update();
      table.Insert();
    }
    EXPECT_TRUE(table.Recovers());
    redis.Start(master);
  }
  EXPECT_TRUE(table.Recovers());
}

TEST(RedisFaultsTest, SlotsMoveToAnotherMaster) {
  TestRedis redis({.count = 3, .cluster = true});
  Watched table(redis.Config());
  ASSERT_TRUE(table.Recovers());
  const std::string from = redis.Ask(0, {"CLUSTER", "MYID"}).text;
  const std::string to = redis.Ask(1, {"CLUSTER", "MYID"}).text;
  for (const size_t partition : {0, 5, 10}) {
    const std::string slot = std::to_string(RowNames("hps", 1, 64).slot(partition));
    redis.Ask(1, {"CLUSTER", "SETSLOT", slot, "IMPORTING", from});
    redis.Ask(0, {"CLUSTER", "SETSLOT", slot, "MIGRATING", to});
    table.Fetch();
    table.Update();
    table.Insert();
    table.Fetch();
    const std::string port = redis.addresses()[1].substr(redis.addresses()[1].rfind(':') + 1);
    const Reply names = redis.Ask(0, {"CLUSTER", "GETKEYSINSLOT", slot, "100000"});
    for (const Reply& name : names.elements)
      redis.Ask(0, {"MIGRATE", "127.0.0.1", port, name.text, "0", "5000"});
    table.Fetch();
    table.Update();
    for (const size_t server : {1, 0, 2})
      redis.Ask(server, {"CLUSTER", "SETSLOT", slot, "NODE", to});
    table.Fetch();
    table.Update();
    EXPECT_TRUE(table.Recovers());
  }
  EXPECT_GT(table.statistics().moved, 0u);
  EXPECT_GT(table.statistics().ask, 0u);
}

}  // namespace
}  // namespace hps
