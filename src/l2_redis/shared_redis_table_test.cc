// Nodes that share a table on real servers: whatever one of them writes, and whatever happens to
// the servers, no node answers another row than its own level 3 has.
#include "l2_redis/shared_redis_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/macros.h"
#include "l2_redis/test_redis.h"
#include "l2_redis/test_shared_nodes.h"
#include "testing/await.h"
#include "testing/contracts/lossy_rows.h"
#include "tier/redis_tier.h"

namespace hps {
namespace {

using shared_nodes::AllKeys;
using shared_nodes::kKeys;
using shared_nodes::kPartitions;
using shared_nodes::kRowBytes;
using shared_nodes::kTable;
using shared_nodes::Node;
using shared_nodes::PartitionOf;
using shared_nodes::Stream;

// What a server without room does: some of the names are gone, the marks' too.
constexpr std::string_view kEviction = R"(
for i = 1, 20 do
  local name = redis.call('RANDOMKEY')
  if name then redis.call('DEL', name) end
end
return 0
)";

constexpr std::string_view kGarbage = R"(
for i = 1, 50 do
  local name = redis.call('RANDOMKEY')
  if name then redis.call('SETRANGE', name, 5, 'garbage') end
end
return 0
)";

// Damages all marks, which are the shortest values: overwrites bytes, cuts them, or puts a list in
// their place.
constexpr std::string_view kDamageMarks = R"(
for _, name in ipairs(redis.call('KEYS', '*')) do
  if redis.call('STRLEN', name) < 60 then
    if ARGV[1] == 'cut' then
      redis.call('SET', name, string.sub(redis.call('GET', name), 1, 20))
    elseif ARGV[1] == 'list' then
      redis.call('DEL', name)
      redis.call('LPUSH', name, 'x')
    else
      redis.call('SETRANGE', name, ARGV[1], ARGV[2])
    end
  end
end
return 0
)";

struct Servers {
  const char* name;
  TestRedis::Options options;
};

class SharedRedisTableTest : public ::testing::TestWithParam<Servers> {
 protected:
  SharedRedisTableTest() : redis_(GetParam().options) {}

  RedisConfig Config() const {
    RedisConfig config = redis_.Config();
    config.partitions = 8;
    return config;
  }
  void AskAll(std::initializer_list<std::string_view> parts) {
    for (size_t server = 0; server < redis_.addresses().size(); ++server) redis_.Ask(server, parts);
  }

  TestRedis redis_;
};

INSTANTIATE_TEST_SUITE_P(Redis, SharedRedisTableTest,
                         ::testing::Values(Servers{"standalone", {}},
                                           Servers{"cluster", {.count = 3, .cluster = true}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(SharedRedisTableTest, ANodeTakesWhatAnotherInserted) {
  Node first(Config(), "v1");
  EXPECT_EQ(first.Check(AllKeys()), 0u);
  EXPECT_EQ(first.Promote(AllKeys()), kKeys);
  EXPECT_EQ(first.Promote(AllKeys()), 0u) << "they are held";
  Node second(Config(), "v1");
  EXPECT_EQ(second.Check(AllKeys()), kKeys);
  Node other_import(Config(), "v2");
  EXPECT_EQ(other_import.Check(AllKeys()), 0u);
  RedisConfig config = Config();
  config.key_prefix = "other";
  EXPECT_EQ(Node(config, "v1").Check(AllKeys()), 0u);
  if (config.cluster) {
    config = Config();
    config.partitions = 4;
    EXPECT_EQ(Node(config, "v1").Check(AllKeys()), 0u);
  }
}

TEST_P(SharedRedisTableTest, ANodeThatIsAheadAndOneThatIsBehind) {
  Node fast(Config(), "v1");
  Node slow(Config(), "v1");
  fast.BeginStream();
  slow.BeginStream();
  fast.Promote(AllKeys());
  EXPECT_EQ(slow.Check(AllKeys()), kKeys);
  Stream stream;
  for (Key key = 0; key < 100; ++key) stream.Publish(key);
  for (size_t partition = 0; partition < kPartitions; ++partition)
    while (fast.Apply(stream, partition, 7)) continue;
  EXPECT_EQ(fast.Check(AllKeys()), kKeys) << "it has replaced the rows that were held";
  const size_t taken = slow.Check(AllKeys());
  EXPECT_LE(taken, kKeys - 100) << "the new rows are not its own yet";
  EXPECT_GE(taken, kKeys - 110);
  // What the slow node promotes now is late: it may itself take it, the fast one may not.
  AskAll({"FLUSHALL"});
  fast.Promote({200});
  EXPECT_EQ(slow.Promote(AllKeys()), kKeys - 1);
  EXPECT_EQ(slow.Check(AllKeys()), kKeys);
  EXPECT_LE(fast.Check(AllKeys()), 3 * kKeys / 4);
  // Then the changes are written again, by a node that repeats them.
  for (size_t partition = 0; partition < kPartitions; ++partition)
    while (slow.Apply(stream, partition, 5)) continue;
  slow.Check(AllKeys());
  fast.Promote(AllKeys());
  EXPECT_EQ(slow.Check(AllKeys()), kKeys);
  EXPECT_EQ(fast.Check(AllKeys()), kKeys);
}

// Catches: a promotion that is written behind a change that it does not have.
TEST_P(SharedRedisTableTest, APromotionThatComesLate) {
  Node first(Config(), "v1");
  Node second(Config(), "v1");
  first.BeginStream();
  second.BeginStream();
  first.Promote({250});
  Stream stream;
  for (Key key = 0; key < 20; ++key) stream.Publish(key);
  auto late = second.Fetched(AllKeys());
  for (size_t partition = 0; partition < kPartitions; ++partition)
    while (first.Apply(stream, partition, 100)) continue;
  EXPECT_GT(second.Insert(std::move(late)), 0u);
  first.Check(AllKeys());
  EXPECT_EQ(second.Check(AllKeys()), kKeys);
  for (size_t partition = 0; partition < kPartitions; ++partition)
    while (second.Apply(stream, partition, 100)) continue;
  second.Check(AllKeys());
  first.Promote(AllKeys());
  EXPECT_EQ(first.Check(AllKeys()), kKeys);
  EXPECT_EQ(second.Check(AllKeys()), kKeys);
}

// A deletion is a change, too: an absent key is not answered before level 3 has lost it.
TEST_P(SharedRedisTableTest, DeletedKeys) {
  Node fast(Config(), "v1");
  Node slow(Config(), "v1");
  fast.BeginStream();
  slow.BeginStream();
  fast.Promote(AllKeys());
  Stream stream;
  for (Key key = 0; key < 50; ++key) stream.Publish(key, /*is_delete=*/true);
  for (size_t partition = 0; partition < kPartitions; ++partition)
    while (fast.Apply(stream, partition, 9)) continue;
  fast.Check(AllKeys());
  fast.Promote(AllKeys());
  EXPECT_EQ(fast.Check(AllKeys()), kKeys) << "also the absent ones";
  EXPECT_LE(slow.Check(AllKeys()), kKeys - 50);
  for (size_t partition = 0; partition < kPartitions; ++partition)
    while (slow.Apply(stream, partition, 9)) continue;
  EXPECT_EQ(slow.Check(AllKeys()), kKeys);
}

// The order of everything that can happen, by seeds; a server evicts, forgets and comes back with
// what it had before. Each answer is that of the node's own level 3.
// One change of the slow node is behind the mark in the key's partition, and beyond it in another.
TEST_P(SharedRedisTableTest, ARowOfASlowNodeStaysLate) {
  const std::vector<Key> keys = AllKeys();
  const auto of_partition = [&](size_t partition) {
    return *std::find_if(keys.begin(), keys.end(),
                         [&](Key key) { return PartitionOf(key) == partition; });
  };
  const Key key = of_partition(0);
  Stream stream;
  for (int i = 0; i < 10; ++i) stream.Publish(key);
  for (int i = 0; i < 10; ++i) stream.Publish(of_partition(1));
  Node fast(Config(), "v1");
  Node slow(Config(), "v1");
  for (Node* const node : {&fast, &slow}) node->BeginStream();
  ASSERT_TRUE(slow.Apply(stream, 0, 3));
  ASSERT_TRUE(fast.Apply(stream, 0, 10));
  slow.Promote({key});
  ASSERT_TRUE(slow.Apply(stream, {0, 1}, 3));
  fast.Check({key});
  slow.Check({key});
}

TEST_P(SharedRedisTableTest, RandomHistories) {
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](size_t bound) { return random() % bound; };
    AskAll({"FLUSHALL"});
    std::vector<std::unique_ptr<Node>> nodes;
    for (size_t i = 0; i < 3; ++i) {
      nodes.push_back(std::make_unique<Node>(Config(), absl::StrCat("seed", seed)));
      nodes.back()->BeginStream();
    }
    Stream stream;
    std::deque<std::pair<size_t, Node::Promotion>> waiting;
    size_t answers = 0;
    for (size_t step = 0; step < 1000; ++step) {
      Node& node = *nodes[below(10) < 5 ? 0 : below(10) < 7 ? 1 : 2];  // not equally fast
      std::vector<Key> keys;
      for (size_t i = 0; i < 20; ++i) keys.push_back(static_cast<Key>(below(kKeys)));
      switch (below(12)) {
        case 0:
        case 1:
          for (const Key key : keys) stream.Publish(key, below(10) == 0);
          break;
        case 2:
        case 3:
        case 4: {
          const size_t partition = below(kPartitions);
          std::vector<size_t> partitions = {partition};
          if (below(2) == 0) partitions.push_back((partition + 1) % kPartitions);
          node.Apply(stream, partitions, 1 + below(30));
        } break;
        case 5:
          node.Promote(keys);
          break;
        case 6:
          if (waiting.size() < 10) {
            const size_t number = below(3);
            waiting.emplace_back(number, nodes[number]->Fetched(keys));
          }
          break;
        case 7:
          if (waiting.empty()) break;
          nodes[waiting.front().first]->Insert(std::move(waiting.front().second));
          waiting.pop_front();
          break;
        case 8:
          if (below(20) == 0) AskAll({"FLUSHALL"});
          if (below(40) == 0) {
            waiting.clear();  // those of a process that ends
            node.Open();
          }
          break;
        case 9:  // eviction: any of the names, the marks' too
          if (below(4) == 0) redis_.Ask(below(redis_.addresses().size()), {"EVAL", kEviction, "0"});
          break;
        default:
          answers += node.Check(keys);
      }
    }
    for (const auto& node : nodes) answers += node->Check(AllKeys());
    EXPECT_GT(answers, 300u) << "the level was of some use";
  }
}

// A server that comes back with an old snapshot has lost changes; its marks say so.
TEST_P(SharedRedisTableTest, AnOldSnapshot) {
  if (GetParam().options.cluster) GTEST_SKIP() << "one server is enough";
  Node first(Config(), "v1");
  Node second(Config(), "v1");
  first.BeginStream();
  second.BeginStream();
  first.Promote(AllKeys());
  redis_.Ask(0, {"SAVE"});
  Stream stream;
  for (Key key = 0; key < 60; ++key) stream.Publish(key);
  for (size_t partition = 0; partition < kPartitions; ++partition) {
    while (first.Apply(stream, partition, 100)) continue;
    while (second.Apply(stream, partition, 100)) continue;
  }
  EXPECT_EQ(second.Check(AllKeys()), kKeys);
  redis_.Kill(0);
  redis_.Start(0);
  size_t answers = 0;
  ASSERT_TRUE(AwaitCondition([&] { return (answers = first.Check(AllKeys())) > 0; }));
  EXPECT_GE(answers, kKeys - 70) << "the snapshot has the rows that have not changed since";
  EXPECT_LE(answers, kKeys - 60);
  for (Key key = 0; key < 10; ++key) stream.Publish(key);
  for (size_t partition = 0; partition < kPartitions; ++partition)
    while (first.Apply(stream, partition, 100)) continue;
  first.Check(AllKeys());
  first.Promote(AllKeys());
  EXPECT_EQ(first.Check(AllKeys()), kKeys);
  second.Check(AllKeys());
}

// Readers, a writer and promotions of two nodes at the same time: no reader of a node sees a
// version go back, at the level or below it.
TEST_P(SharedRedisTableTest, NoReaderGoesBack) {
  constexpr size_t kHotKeys = 40;
  std::vector<Key> hot(kHotKeys);
  for (size_t i = 0; i < kHotKeys; ++i) hot[i] = static_cast<Key>(i);
  struct Shared {
    explicit Shared(const RedisConfig& config) : node(config, "v1") { node.BeginStream(); }
    Node node;
  };
  Shared fast(Config());
  Shared slow(Config());
  Stream stream;  // all of it is there; nodes apply it by and by
  for (size_t round = 0; round < 60; ++round)
    for (const Key key : hot) stream.Publish(key);
  std::atomic<bool> done{false};
  const auto read = [&](Shared& at) {
    std::vector<Version> seen(kHotKeys, 0);
    size_t hits = 0;
    const auto look = [&] {
      const ContractFetch fetch(at.node.table(), hot, kRowBytes);
      for (size_t i = 0; i < kHotKeys; ++i) {
        Version version = 0;
        if (fetch.outcome(i) == FetchOutcome::kHit) {
          version = fetch.version(i);
          ++hits;
          ASSERT_TRUE(fetch.IsRowOf(i, kTable, version));
        } else {
          version = at.node.level3(i);
        }
        ASSERT_GE(version, seen[i]) << "key " << hot[i];
        seen[i] = version;
      }
    };
    while (!done.load() && !HasFatalFailure()) look();
    // A reader that did not run while the others wrote finds what they have written.
    EXPECT_TRUE(AwaitCondition([&] {
      look();
      return HasFatalFailure() || hits > 0;
    }));
  };
  const auto write = [&](Shared& at, size_t count) {
    for (bool is_any = true; is_any;) {
      is_any = false;
      for (size_t partition = 0; partition < kPartitions; ++partition) {
        is_any |= at.node.Apply(stream, partition, count);
        at.node.Promote(hot);
      }
    }
  };
  std::vector<std::thread> readers;
  for (Shared* const at : {&fast, &slow}) readers.emplace_back([&, at] { read(*at); });
  std::thread fast_writer([&] { write(fast, 11); });
  write(slow, 3);
  fast_writer.join();
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(fast.node.Check(hot), kHotKeys);
  EXPECT_EQ(slow.node.Check(hot), kHotKeys);
}

// Of nodes that divide the writing, one takes over and repeats changes that are written already.
TEST_P(SharedRedisTableTest, OwnersWriteForAll) {
  Node first(Config(), "v1", /*writes_changes=*/false);
  Node second(Config(), "v1", /*writes_changes=*/false);
  first.BeginStream();
  second.BeginStream();
  first.Promote(AllKeys());
  Stream stream;
  for (size_t round = 0; round < 10; ++round)
    for (Key key = 0; key < 100; ++key) stream.Publish(key);
  for (Node* const node : {&first, &second}) {
    for (size_t partition = 0; partition < kPartitions; ++partition)
      while (node->Apply(stream, partition, 50)) continue;
  }
  EXPECT_LE(second.Check(AllKeys()), kKeys - 100) << "nobody has written the changes yet";
  for (size_t partition = 0; partition < kPartitions; ++partition) {
    const uint64_t end = stream.partitions[partition].size();
    EXPECT_TRUE(first.WriteShared(stream, partition, 0, end / 2).ok());
    first.Check(AllKeys());
    EXPECT_TRUE(second.WriteShared(stream, partition, end / 4, end / 3).ok());
    second.Check(AllKeys());
    EXPECT_TRUE(second.WriteShared(stream, partition, end / 3, end).ok());
  }
  EXPECT_EQ(first.Check(AllKeys()), kKeys) << "no row was lost on the way";
  EXPECT_EQ(second.Check(AllKeys()), kKeys);
  // Changes that nobody has written: no row of before them is left.
  for (Key key = 0; key < 100; ++key) stream.Publish(key);
  for (Node* const node : {&first, &second}) {
    for (size_t partition = 0; partition < kPartitions; ++partition)
      while (node->Apply(stream, partition, 50)) continue;
  }
  const uint64_t end = stream.partitions[0].size();
  EXPECT_TRUE(first.WriteShared(stream, 0, end - 1, end).ok());
  EXPECT_EQ(second.Check(AllKeys()), 0u);
  second.Promote(AllKeys());
  EXPECT_EQ(first.Check(AllKeys()), kKeys);
}

// As with messages of before a topic grew: versions of such a key have no order.
TEST_P(SharedRedisTableTest, AKeyInAnotherPartition) {
  Node first(Config(), "v1");
  Node second(Config(), "v1");
  for (Node* const node : {&first, &second}) node->BeginStream();
  first.Promote(AllKeys());
  Stream stream;
  const size_t wrong = (PartitionOf(7) + 1) % kPartitions;
  stream.partitions[wrong].push_back({.key = 7});
  ASSERT_TRUE(first.Apply(stream, wrong, 1));
  EXPECT_EQ(second.Check({7}), 0u) << "its row is removed";
  second.Promote({7});
  EXPECT_EQ(first.Check({7}), 0u);
  first.Open();
  EXPECT_EQ(first.Check({7}), 0u) << "also after a restart";
  EXPECT_EQ(first.Promote({7}), 0u);
  ASSERT_TRUE(second.Apply(stream, wrong, 1));
  EXPECT_EQ(second.Check({7}), 0u);
}

// A large change is several scripts, of which each is whole.
TEST_P(SharedRedisTableTest, ALargeChange) {
  Node node(Config(), "v1", /*writes_changes=*/false);
  node.BeginStream();
  node.Promote(AllKeys());
  Stream stream;
  for (size_t round = 0; round < 40; ++round)
    for (const Key key : AllKeys()) stream.Publish(key);
  for (size_t partition = 0; partition < kPartitions; ++partition) {
    while (node.Apply(stream, partition, 5000)) continue;
    const uint64_t end = stream.partitions[partition].size();
    ASSERT_GT(end, 2000u);
    int asked = 0;
    const auto ends = [&] { return ++asked > 1; };
    EXPECT_TRUE(absl::IsUnavailable(node.WriteShared(stream, partition, 0, end, ends)));
    EXPECT_EQ(asked, 2) << "it ends between two scripts";
    EXPECT_TRUE(node.WriteShared(stream, partition, 0, end).ok());
  }
  EXPECT_EQ(node.Check(AllKeys()), kKeys);
}

// A server without room takes no new values: what can't be changed is removed.
TEST_P(SharedRedisTableTest, AServerWithoutRoom) {
  Node node(Config(), "v1");
  node.BeginStream();
  node.Promote(AllKeys());
  AskAll({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  AskAll({"CONFIG", "SET", "maxmemory", "1"});
  Stream stream;
  for (Key key = 0; key < 100; ++key) stream.Publish(key);
  for (size_t partition = 0; partition < kPartitions; ++partition)
    while (node.Apply(stream, partition, 10)) continue;
  EXPECT_LT(node.Check(AllKeys()), kKeys);
  EXPECT_EQ(node.Promote(AllKeys()), 0u);
  AskAll({"CONFIG", "SET", "maxmemory", "0"});
  node.Promote(AllKeys());
  EXPECT_EQ(node.Check(AllKeys()), kKeys);
}

// What one server does not take does not hold up the changes of the others, and the rows there are
// never taken for current ones, not even when the server comes back with what it had before.
TEST_P(SharedRedisTableTest, AServerThatIsDownHoldsUpNoChange) {
  if (!GetParam().options.cluster) GTEST_SKIP() << "of one server nothing is given up";
  Node first(Config(), "v1", /*writes_changes=*/false);
  Node second(Config(), "v1", /*writes_changes=*/false);
  first.BeginStream();
  second.BeginStream();
  first.Promote(AllKeys());
  ASSERT_EQ(second.Check(AllKeys()), kKeys);
  redis_.Ask(0, {"SAVE"});
  redis_.Kill(0);
  Stream stream;
  for (size_t round = 0; round < 30; ++round)  // a change is more than one script
    for (const Key key : AllKeys()) stream.Publish(key);
  std::array<uint64_t, kPartitions> written{};
  const auto apply = [&] {
    for (Node* const node : {&first, &second}) {
      for (size_t partition = 0; partition < kPartitions; ++partition)
        while (node->Apply(stream, partition, 5000)) continue;
    }
  };
  const auto write = [&](size_t partition) {
    const uint64_t end = stream.partitions[partition].size();
    const absl::Status status = first.WriteShared(stream, partition, written[partition], end);
    if (status.ok()) written[partition] = end;
    return status;
  };
  apply();
  EXPECT_TRUE(absl::IsUnavailable(write(0))) << "it is tried again for a while";
  for (size_t partition = 0; partition < kPartitions; ++partition)
    ASSERT_TRUE(AwaitCondition([&] { return write(partition).ok(); }));
  EXPECT_GE(first.statistics().changes_given_up, kPartitions);
  EXPECT_GE(second.Check(AllKeys()), kKeys / 3) << "the others have replaced their rows";
  redis_.Start(0);
  ASSERT_TRUE(AwaitCondition([&] {
    second.Check(AllKeys());
    return !second.statistics().nodes[0].bypassed;
  }));
  first.Open();
  first.Check(AllKeys());
  for (Key key = 0; key < 50; ++key) stream.Publish(key);
  apply();
  for (size_t partition = 0; partition < kPartitions; ++partition) {
    ASSERT_TRUE(AwaitCondition([&] { return write(partition).ok(); }));
    second.Check(AllKeys());
  }
  ASSERT_TRUE(AwaitCondition([&] {
    second.Promote(AllKeys());
    return second.Check(AllKeys()) == kKeys;
  }));
  EXPECT_TRUE(AwaitCondition([&] { return first.Check(AllKeys()) == kKeys; }));
}

TEST_P(SharedRedisTableTest, AServerThatIsDownAloneIsWaitedFor) {
  if (GetParam().options.cluster) GTEST_SKIP() << "one server is enough";
  Node node(Config(), "v1", /*writes_changes=*/false);
  node.BeginStream();
  node.Promote(AllKeys());
  redis_.Ask(0, {"SAVE"});
  Stream stream;
  for (Key key = 0; key < 100; ++key) stream.Publish(key);
  for (size_t partition = 0; partition < kPartitions; ++partition)
    while (node.Apply(stream, partition, 1000)) continue;
  redis_.Kill(0);
  const TimePoint retries_end = RealClock().Now() + 2 * SharedRedisTable::kRetryFor;
  while (RealClock().Now() < retries_end)
    ASSERT_TRUE(absl::IsUnavailable(node.WriteShared(stream, 0, 0, 1)));
  EXPECT_EQ(node.statistics().changes_given_up, 0u);
  redis_.Start(0);
  for (size_t partition = 0; partition < kPartitions; ++partition) {
    const uint64_t end = stream.partitions[partition].size();
    ASSERT_TRUE(AwaitCondition([&] { return node.WriteShared(stream, partition, 0, end).ok(); }));
  }
  const TimePoint end = RealClock().Now() + kAwaitMax;
  while (node.Check(AllKeys()) != kKeys) ASSERT_LT(RealClock().Now(), end) << "no row was lost";
}

// A damaged mark is no mark: no row counts as newer than it is, and the next node that writes makes
// a new one. Catches: a generation above one's own, which no node ever replaced.
TEST_P(SharedRedisTableTest, MarksThatAreDamaged) {
  Node node(Config(), "v1", /*writes_changes=*/false);
  node.BeginStream();
  Stream stream;
  const std::string_view high("\x7f\xff", 2);  // a generation
  const std::string_view later("\x0f", 1);     // an offset that no node has reached
  const std::vector<std::pair<std::string_view, std::string_view>> damages = {
      {"8", high}, {"10", later}, {"0", "xx"}, {"35", "x"}, {"cut", ""}, {"list", ""}};
  for (const auto& [how, bytes] : damages) {
    SCOPED_TRACE(how);
    node.Promote(AllKeys());
    ASSERT_EQ(node.Check(AllKeys()), kKeys);
    const auto begins = stream.partitions;
    for (Key key = 0; key < 100; ++key) stream.Publish(key);
    for (size_t partition = 0; partition < kPartitions; ++partition)
      while (node.Apply(stream, partition, 100)) continue;
    AskAll({"EVAL", kDamageMarks, "0", how, bytes});
    EXPECT_EQ(node.Check(AllKeys()), 0u);
    EXPECT_EQ(node.Promote(AllKeys()), kKeys) << "an insertion makes a new mark";
    EXPECT_EQ(node.Check(AllKeys()), kKeys);
    AskAll({"EVAL", kDamageMarks, "0", how, bytes});
    for (size_t partition = 0; partition < kPartitions; ++partition) {
      EXPECT_TRUE(node.WriteShared(stream, partition, begins[partition].size(),
                                   stream.partitions[partition].size())
                      .ok());
    }
    EXPECT_EQ(node.Check(AllKeys()), 0u) << "a change makes a new mark";
    EXPECT_EQ(node.Promote(AllKeys()), kKeys);
    EXPECT_EQ(node.Check(AllKeys()), kKeys);
  }
}

TEST_P(SharedRedisTableTest, WhatAnotherProgramWrote) {
  Node node(Config(), "v1");
  node.Promote(AllKeys());
  for (size_t server = 0; server < redis_.addresses().size(); ++server) {
    redis_.Ask(server, {"EVAL", kGarbage, "0"});
  }
  node.Check(AllKeys());
  node.Promote(AllKeys());
  node.Check(AllKeys());
  const TimePoint end = RealClock().Now() + kAwaitMax;
  while (node.Check(AllKeys()) != kKeys && RealClock().Now() < end) node.Promote(AllKeys());
  EXPECT_EQ(node.Check(AllKeys()), kKeys) << "what is damaged is removed";
}

}  // namespace
}  // namespace hps
