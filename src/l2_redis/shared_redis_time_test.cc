// How long a change of shared rows is tried, at servers that are slow or down.
#include <gtest/gtest.h>

#include "l2_redis/shared_redis_table.h"
#include "l2_redis/test_proxy.h"
#include "l2_redis/test_redis.h"
#include "l2_redis/test_shared_nodes.h"
#include "testing/await.h"

namespace hps {
namespace {

using shared_nodes::AllKeys;
using shared_nodes::kKeys;
using shared_nodes::Node;
using shared_nodes::Stream;

// Catches: one time for all scripts of a change, which the caller then repeats for ever.
TEST(SharedRedisTimeTest, ALargeChangeAtASlowServer) {
  TestRedis redis{{}};
  TestProxy proxy(redis.addresses()[0]);
  RedisConfig config = redis.Config();
  config.nodes = {proxy.address()};
  config.timeout = std::chrono::seconds(20);
  config.write_timeout = std::chrono::milliseconds(600);
  Node node(config, "v1", /*writes_changes=*/false);
  node.BeginStream();
  // The time of a promotion is over before a paused thread has written all of it.
  ASSERT_TRUE(AwaitCondition([&] {
    node.Promote(AllKeys());
    return node.Check(AllKeys()) == kKeys;
  }));
  Stream stream;
  while (stream.partitions[0].size() < 5000)  // 20 scripts, which take longer than 600 ms
    for (const Key key : AllKeys()) stream.Publish(key);
  while (node.Apply(stream, 0, 5000)) continue;
  proxy.Set({.delay = std::chrono::milliseconds(60)});
  ASSERT_TRUE(AwaitCondition(
      [&] { return node.WriteShared(stream, 0, 0, stream.partitions[0].size()).ok(); }));
  proxy.Set({});
  EXPECT_EQ(node.Check(AllKeys()), kKeys) << "no row was lost";
}

// Catches: a reply that one server lost, which was given up at once while another one was down.
TEST(SharedRedisTimeTest, EachServerHasItsOwnTime) {
  TestRedis redis{{.count = 3, .cluster = true}};
  RedisConfig config = redis.Config();
  config.partitions = 8;
  Node node(config, "v1", /*writes_changes=*/false);
  node.BeginStream();
  node.Promote(AllKeys());
  Stream stream;
  for (const Key key : AllKeys()) stream.Publish(key);
  while (node.Apply(stream, 0, 1000)) continue;
  const uint64_t end = stream.partitions[0].size();
  redis.Kill(0);
  ASSERT_TRUE(AwaitCondition([&] { return node.WriteShared(stream, 0, 0, end).ok(); }));
  redis.Kill(1);
  EXPECT_TRUE(absl::IsUnavailable(node.WriteShared(stream, 0, 0, end)));
}

}  // namespace
}  // namespace hps
