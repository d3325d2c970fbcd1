#include "l2_redis/slot_map.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

Reply Read(const std::string& bytes) {
  ReplyReader reader;
  ReplyTreeSink sink;
  EXPECT_TRUE(reader.Feed(bytes, sink).ok());
  EXPECT_EQ(sink.replies().size(), 1u);
  return sink.replies().front();
}

TEST(SlotMapTest, ReadsTheNodesOfClusterSlots) {
  const auto ranges = ParseClusterSlots(
      Read("*2\r\n*4\r\n:0\r\n:8191\r\n*4\r\n$4\r\n10.1\r\n:7\r\n$2\r\nid\r\n*0\r\n"
           "*3\r\n$4\r\n10.2\r\n:8\r\n$2\r\nid\r\n"
           "*3\r\n:8192\r\n:16383\r\n*3\r\n$0\r\n\r\n:9\r\n$2\r\nid\r\n"),
      {.host = "asked", .port = 1});
  ASSERT_TRUE(ranges.ok()) << ranges.status();
  ASSERT_EQ(ranges->size(), 2u);
  EXPECT_EQ((*ranges)[0].last, 8191);
  EXPECT_EQ((*ranges)[0].master.Text(), "10.1:7");
  ASSERT_EQ((*ranges)[0].replicas.size(), 1u);
  EXPECT_EQ((*ranges)[0].replicas[0].Text(), "10.2:8");
  EXPECT_TRUE((*ranges)[1].replicas.empty());
  // A node that does not know its own address.
  EXPECT_EQ((*ranges)[1].master.Text(), "asked:9");
}

TEST(SlotMapTest, RefusesOtherReplies) {
  for (const char* bytes :
       {"+OK\r\n", "*1\r\n:1\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nh\r\n:7\r\n",
        "*1\r\n*3\r\n:2\r\n:1\r\n*2\r\n$1\r\nh\r\n:7\r\n",
        "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\nh\r\n:70000\r\n", "*1\r\n*3\r\n:0\r\n:1\r\n:7\r\n"}) {
    EXPECT_EQ(ParseClusterSlots(Read(bytes), {}).status().code(), absl::StatusCode::kDataLoss)
        << bytes;
  }
}

TEST(SlotMapTest, AnotherOwnerIsAnotherEpoch) {
  RedisNode a({.host = "a", .port = 1}, {}, 1), b({.host = "b", .port = 1}, {}, 1);
  SlotMap slots;
  EXPECT_EQ(slots.Owner(5), nullptr);
  slots.SetOwner(5, &a);
  const uint64_t first = slots.Epoch(5);
  slots.SetOwner(5, &a);
  EXPECT_EQ(slots.Epoch(5), first);
  slots.SetOwner(5, &b);
  EXPECT_GT(slots.Epoch(5), first);
  slots.SetOwner(6, &a);
  const uint64_t of_a = slots.Epoch(6), of_b = slots.Epoch(5);
  slots.EndEpochsOf(&b);
  EXPECT_EQ(slots.Epoch(6), of_a);
  EXPECT_GT(slots.Epoch(5), of_b);
  slots.EndEpoch(6, of_a);
  slots.EndEpoch(6, of_a);  // ended already
  EXPECT_EQ(slots.Epoch(6), of_a + 1);
}

}  // namespace
}  // namespace hps
