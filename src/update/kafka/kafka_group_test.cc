// Nodes that divide the partitions of a topic on a real broker.
#include "update/kafka/kafka_group.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "testing/await.h"
#include "update/kafka/test_kafka_brokers.h"
#include "update/kafka/test_kafka_writer.h"
#include "update/update_message.h"

namespace hps {
namespace {

constexpr uint32_t kPartitions = 4;
constexpr auto kPatience = std::chrono::seconds(120);

class KafkaGroupTest : public ::testing::Test {
 protected:
  KafkaGroupTest()
      : table_(absl::StrCat("m/", testing::UnitTest::GetInstance()->current_test_info()->name())) {
    kafka_.MakeTopic(UpdateTopic(table_), kPartitions);
  }

  std::unique_ptr<SharedGroup> Join() {
    auto group = MakeKafkaGroup(
        {.brokers = kafka_.addresses(), .group = table_.substr(2), .tables = {table_}});
    EXPECT_TRUE(group.ok()) << group.status();
    return *std::move(group);
  }
  void Write(uint32_t partition, const std::string& payload) {
    writer_.Write(UpdateTopic(table_), partition, payload);
  }
  void WriteToAll(const std::string& payload) {
    for (uint32_t partition = 0; partition < kPartitions; ++partition) Write(partition, payload);
    writer_.Flush();
  }

  // The partitions that a node has got records of, and the offset of the first.
  using Firsts = std::map<uint32_t, uint64_t>;
  static void Poll(SharedGroup& group, Firsts& firsts) {
    auto records = group.Poll(100, DeadlineAfter(RealClock(), std::chrono::milliseconds(200)));
    ASSERT_TRUE(records.ok()) << records.status();
    for (const UpdateRecord& record : *records)
      firsts.emplace(record.position.partition, record.position.offset);
  }

  TestKafkaBrokers& kafka_ = TestKafkaBrokers::Shared();
  const std::string table_;
  TestKafkaWriter writer_{kafka_.addresses()};
};

TEST_F(KafkaGroupTest, EachPartitionHasOneOwner) {
  const auto first = Join();
  const auto second = Join();
  Firsts of_first;
  Firsts of_second;
  // Until both have their parts; what was read before they were divided does not count.
  const auto are_divided = [&] {
    of_first.clear();
    of_second.clear();
    WriteToAll("x");
    for (int i = 0; i < 3; ++i) {
      Poll(*first, of_first);
      Poll(*second, of_second);
    }
    return HasFatalFailure() ||
           (of_first.size() == kPartitions / 2 && of_second.size() == kPartitions / 2);
  };
  ASSERT_TRUE(AwaitCondition(are_divided, kPatience));
  for (const auto& [partition, offset] : of_first) EXPECT_FALSE(of_second.contains(partition));
  auto owned = first->Owned();
  for (const auto& [table, partition] : owned) {
    EXPECT_EQ(table, table_);
    EXPECT_TRUE(of_first.contains(partition));
  }
  for (const auto& place : second->Owned()) owned.push_back(place);
  EXPECT_EQ(owned.size(), kPartitions);
}

TEST_F(KafkaGroupTest, ANewOwnerRepeatsFromTheCommittedOffset) {
  auto first = Join();
  Firsts firsts;
  const auto has_all = [&] {  // a partition is read from its end first
    WriteToAll("x");
    Poll(*first, firsts);
    return HasFatalFailure() || firsts.size() == kPartitions;
  };
  ASSERT_TRUE(AwaitCondition(has_all, kPatience));
  const StreamPosition committed = {.partition = 1, .generation = 1, .offset = firsts[1] + 1};
  WriteToAll("y");
  WriteToAll("z");
  first->Commit(table_, {&committed, 1});
  Firsts more;
  Poll(*first, more);
  first = nullptr;  // leaves; what it has committed is sent before
  const auto second = Join();
  Firsts again;
  const auto repeats = [&] {
    Poll(*second, again);
    return HasFatalFailure() || again.contains(1);
  };
  ASSERT_TRUE(AwaitCondition(repeats, kPatience));
  EXPECT_EQ(again[1], committed.offset);
}

TEST_F(KafkaGroupTest, ATableWithoutATopicIsNoError) {
  auto group = MakeKafkaGroup(
      {.brokers = kafka_.addresses(), .group = "missing", .tables = {table_, "m/no_topic"}});
  ASSERT_TRUE(group.ok()) << group.status();
  Firsts firsts;
  const auto has_any = [&] {
    WriteToAll("x");
    Poll(**group, firsts);
    return HasFatalFailure() || !firsts.empty();
  };
  ASSERT_TRUE(AwaitCondition(has_any, kPatience));
  EXPECT_TRUE(absl::IsInvalidArgument(MakeKafkaGroup({.group = "g"}).status()));
}

}  // namespace
}  // namespace hps
