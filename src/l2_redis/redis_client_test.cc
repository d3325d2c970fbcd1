// Which node a failure is blamed on: on real servers.
#include "l2_redis/redis_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "l2_redis/command_writer.h"
#include "l2_redis/slots.h"
#include "l2_redis/test_redis.h"
#include "testing/await.h"

namespace hps {
namespace {

class AnyReply final : public RequestSink {
 public:
  bool OnArray(size_t, size_t) override { return true; }
  bool OnValue(size_t, size_t, const ReplyValue&) override { return true; }
  void OnRefused(size_t, size_t, RedisError) override {}
};

RedisClient::Options ClientOptionsOf(const TestRedis& redis, Duration timeout) {
  RedisClient::Options options = {.cluster = true, .connections_per_node = 1, .timeout = timeout};
  for (const std::string& address : redis.addresses())
    options.nodes.push_back(*ParseRedisAddress(address));
  return options;
}

void SendAlone(RedisClient& client, uint16_t slot, std::initializer_list<std::string_view> parts,
               Deadline deadline) {
  std::string bytes;
  AppendCommand(parts, bytes);
  RedisRequest request = {.slot = slot, .epoch = client.slots().Epoch(slot), .end = bytes.size()};
  AnyReply sink;
  client.Execute({.bytes = bytes,
                  .requests = {&request, 1},
                  .sink = &sink,
                  .unanswered = Unanswered::kNothing},
                 deadline);
}

Deadline InAMoment() { return DeadlineAfter(RealClock(), std::chrono::milliseconds(100)); }

TEST(RedisClientTest, ANodeIsNotBlamedForTheTimeOfItsCaller) {
  TestRedis redis({});
  redis.Pause(0);
  RedisClient patient(ClientOptionsOf(redis, std::chrono::minutes(10)));
  patient.PrepareSlots(InAMoment());
  EXPECT_EQ(patient.Statistics().failures, 0u);
  EXPECT_FALSE(patient.Statistics().nodes[0].bypassed);
  RedisClient quick(ClientOptionsOf(redis, std::chrono::milliseconds(100)));
  quick.PrepareSlots(kNoDeadline);
  EXPECT_TRUE(quick.Statistics().nodes[0].bypassed) << "it had the whole time-out";
  redis.Resume(0);
}

TEST(RedisClientTest, ANodeIsNotBlamedForConnectionsThatAreInUse) {
  TestRedis redis({.count = 3, .cluster = true});
  RedisClient client(ClientOptionsOf(redis, std::chrono::minutes(10)));
  client.PrepareSlots(kNoDeadline);
  const TimePoint learnt = RealClock().Now();
  std::vector<std::string> keys(3);  // one for each server
  for (int i = 0; std::ranges::any_of(keys, &std::string::empty); ++i) {
    std::string key = absl::StrCat("key", i);
    keys[RedisSlotOf(key) * 3 / kRedisSlotCount] = key;
  }
  std::vector<std::thread> users;
  for (size_t server = 0; server < 2; ++server) {
    users.emplace_back([&client, &key = keys[server]] {
      SendAlone(client, RedisSlotOf(key), {"BLPOP", key, "0"}, kNoDeadline);
    });
    EXPECT_TRUE(AwaitCondition([&] {
      return redis.Ask(server, {"INFO", "clients"}).text.find("blocked_clients:1") !=
             std::string::npos;
    }));
  }
  redis.Kill(2);  // so the slots are asked for again, and not before some time has passed
  while (RealClock().Now() < learnt + std::chrono::seconds(1)) std::this_thread::yield();
  // Until the server has been asked: a caller that was paused has no time left to ask it.
  EXPECT_TRUE(AwaitCondition([&] {
    SendAlone(client, RedisSlotOf(keys[2]), {"GET", keys[2]}, InAMoment());
    return client.Statistics().failures > 0;
  }));
  for (const RemoteNodeStatistics& node : client.Statistics().nodes) {
    const bool is_down = node.address == redis.addresses()[2];
    EXPECT_EQ(node.bypassed, is_down) << node.address;
    EXPECT_EQ(node.failures > 0, is_down) << node.address;
  }
  // Both, and then the wait for them: one that asks for the slots again waits for the other's
  // connection.
  for (size_t server = 0; server < 2; ++server) redis.Ask(server, {"LPUSH", keys[server], "x"});
  for (std::thread& user : users) user.join();
}

}  // namespace
}  // namespace hps
