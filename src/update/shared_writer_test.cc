#include "update/shared_writer.h"

#include <gtest/gtest.h>

#include <climits>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "testing/await.h"
#include "tier/shared_table.h"
#include "update/test_update_world.h"

namespace hps {
namespace {

using World = UpdateWorld;
constexpr uint16_t kGeneration = 3;

// What the nodes share, as the writer sees it: where level 3 is, and what was written.
class FakeShared final : public SharedTable {
 public:
  struct Written {
    StreamPosition from;
    StreamPosition to;
    std::vector<Key> upserts;
    std::vector<Key> deletes;
    std::vector<Version> versions;
    friend bool operator==(const Written&, const Written&) = default;
  };

  void BeginChange(std::span<const Key>, ApplyEpoch, std::span<const StreamPosition>) override {}
  void EndChange(const DurableWrite&) override {}
  absl::Status WriteChange(const SharedChange& change) override {
    MutexLock lock(mutex_);
    const Deadline end = DeadlineAfter(RealClock(), delay_);
    while (RealClock().Now() < end) never_.WaitUntil(mutex_, end);
    if (failures_ > 0) {
      --failures_;
      return absl::UnavailableError("planned");
    }
    const DurableWrite& write = *change.write;
    const bool is_delete = write.upserts.keys.empty();
    const auto versions = is_delete ? write.delete_versions : write.upserts.versions;
    written_.push_back({.from = change.from[0],
                        .to = write.positions[0],
                        .upserts = {write.upserts.keys.begin(), write.upserts.keys.end()},
                        .deletes = {write.deletes.begin(), write.deletes.end()},
                        .versions = {versions.begin(), versions.end()}});
    return absl::OkStatus();
  }
  std::vector<StreamPosition> Positions() const override {
    MutexLock lock(mutex_);
    ++looks_;
    return {{.partition = 0, .generation = generation_, .offset = applied_}};
  }
  // How often somebody has asked for the positions.
  int looks() const {
    MutexLock lock(mutex_);
    return looks_;
  }

  void Apply(uint64_t offset) {
    MutexLock lock(mutex_);
    applied_ = offset;
  }
  void BeginGeneration(uint16_t generation) {
    MutexLock lock(mutex_);
    generation_ = generation;
    applied_ = 0;
  }
  void FailWrites(int count) {
    MutexLock lock(mutex_);
    failures_ = count;
  }
  void DelayWrites(Duration delay) {
    MutexLock lock(mutex_);
    delay_ = delay;
  }
  std::vector<Written> written() const {
    MutexLock lock(mutex_);
    return written_;
  }

 private:
  mutable Mutex mutex_;
  CondVar never_;  // a wait for time to pass
  Duration delay_ HPS_GUARDED_BY(mutex_){};
  mutable int looks_ HPS_GUARDED_BY(mutex_) = 0;
  uint64_t applied_ HPS_GUARDED_BY(mutex_) = 0;
  uint16_t generation_ HPS_GUARDED_BY(mutex_) = kGeneration;
  int failures_ HPS_GUARDED_BY(mutex_) = 0;
  std::vector<Written> written_ HPS_GUARDED_BY(mutex_);
};

// A topic of one partition, which this node owns.
struct FakeTopic {
  Mutex mutex;
  std::vector<std::string> payloads HPS_GUARDED_BY(mutex);
  uint64_t next HPS_GUARDED_BY(mutex) = 0;
  uint64_t committed HPS_GUARDED_BY(mutex) = 0;
  int joins HPS_GUARDED_BY(mutex) = 0;
  bool is_assigned HPS_GUARDED_BY(mutex) = true;
};

class FakeGroup final : public SharedGroup {
 public:
  explicit FakeGroup(FakeTopic& topic) : topic_(topic) {
    MutexLock lock(topic_.mutex);
    topic_.next = topic_.committed;
    ++topic_.joins;
  }
  absl::StatusOr<std::vector<UpdateRecord>> Poll(size_t records_max, Deadline deadline) override {
    std::vector<UpdateRecord> records;
    MutexLock lock(topic_.mutex);
    while (records.size() < records_max && topic_.next < topic_.payloads.size()) {
      UpdateRecord& record = records.emplace_back();
      record.table = "m/t";
      record.position = {.partition = 0, .generation = 0, .offset = topic_.next};
      auto payload = std::make_unique<std::string>(topic_.payloads[topic_.next++]);
      record.payload = std::as_bytes(std::span(*payload));
      record.owner = UpdateRecord::Owner(payload.release(), [](void* owned) {
        const std::unique_ptr<std::string> freed(static_cast<std::string*>(owned));
      });
    }
    CondVar never;
    while (records.empty() && RealClock().Now() < deadline) never.WaitUntil(topic_.mutex, deadline);
    return records;
  }
  std::vector<std::pair<std::string, uint32_t>> Owned() override {
    MutexLock lock(topic_.mutex);
    if (!topic_.is_assigned) return {};
    return {{"m/t", 0}};
  }
  void Commit(const std::string& table, std::span<const StreamPosition> positions) override {
    EXPECT_EQ(table, "m/t");
    MutexLock lock(topic_.mutex);
    topic_.committed = positions[0].offset;
  }

 private:
  FakeTopic& topic_;
};

class SharedWriterTest : public ::testing::Test {
 protected:
  SharedWriterTest() {
    LiveTable::Parts parts;
    parts.l3 = *world_.store.OpenTable("m/t");
    parts.l2.push_back({.table = std::make_unique<PlainLossyTable>(), .shared = &shared_});
    live_ = std::make_shared<LiveTable>(std::move(parts));
    EXPECT_TRUE(world_.registry.FindOrAdd("m").Publish({live_}).ok());
  }
  ~SharedWriterTest() override {
    writer_ = nullptr;
    live_ = nullptr;
  }

  void Start(size_t memory_bytes_max = 1 << 20) {
    auto started = SharedWriter::Start({.registry = &world_.registry,
                                        .join = [this](std::vector<std::string> tables)
                                            -> absl::StatusOr<std::unique_ptr<SharedGroup>> {
                                          EXPECT_EQ(tables, (std::vector<std::string>{"m/t"}));
                                          return std::make_unique<FakeGroup>(topic_);
                                        },
                                        .memory_bytes_max = memory_bytes_max,
                                        .look_every = std::chrono::milliseconds(10),
                                        .stands_after = std::chrono::milliseconds(50)});
    ASSERT_TRUE(started.ok()) << started.status();
    writer_ = *std::move(started);
  }
  void Publish(UpdateKind kind, const std::vector<Key>& keys) {
    const TableSpec spec = {.name = "m/t", .dim = World::kDim};
    std::vector<std::byte> rows = World::Rows(kind == UpdateKind::kDelete ? 0 : keys.size(), 1);
    std::string payload(EncodedUpdateBytes(spec, kind, keys.size()), '\0');
    EncodeUpdate(spec, {.kind = kind, .publish_time_us = 1, .keys = keys, .rows = rows},
                 std::as_writable_bytes(std::span(payload)));
    Publish(payload);
  }
  void Publish(const std::string& payload) {
    MutexLock lock(topic_.mutex);
    topic_.payloads.push_back(payload);
  }
  uint64_t committed() {
    MutexLock lock(topic_.mutex);
    return topic_.committed;
  }
  int joins() {
    MutexLock lock(topic_.mutex);
    return topic_.joins;
  }
  static StreamPosition At(uint64_t offset) {
    return {.partition = 0, .generation = kGeneration, .offset = offset};
  }

  World world_;
  FakeShared shared_;
  FakeTopic topic_;
  std::shared_ptr<LiveTable> live_;
  std::unique_ptr<SharedWriter> writer_;
};

TEST_F(SharedWriterTest, WritesBehindLevelThreeAndCommitsBehindTheWrite) {
  Publish(UpdateKind::kUpsert, {1, 2});
  Publish(UpdateKind::kUpsert, {3});
  Publish(UpdateKind::kDelete, {1});
  Publish("garbage");
  Publish(UpdateKind::kDelete, {4});
  Publish(UpdateKind::kUpsert, {5});
  shared_.Apply(5);
  Start();
  ASSERT_TRUE(AwaitCondition([&] { return committed() == 5; }));
  const auto version = [](uint64_t offset) { return VersionAt(kGeneration, offset); };
  EXPECT_EQ(shared_.written(),
            (std::vector<FakeShared::Written>{
                {At(0), At(2), {1, 2, 3}, {}, {version(0), version(0), version(1)}},
                {At(2), At(5), {}, {1, 4}, {version(2), version(4)}}}));
  shared_.Apply(6);
  ASSERT_TRUE(AwaitCondition([&] { return committed() == 6; }));
  EXPECT_EQ(shared_.written().back(), (FakeShared::Written{At(5), At(6), {5}, {}, {version(5)}}));
}

TEST_F(SharedWriterTest, AWriteThatFailsIsMadeAgain) {
  shared_.FailWrites(2);
  shared_.Apply(1);
  Publish(UpdateKind::kUpsert, {1});
  Start();
  ASSERT_TRUE(AwaitCondition([&] { return committed() == 1; }));
  EXPECT_EQ(shared_.written().size(), 1u);
}

TEST_F(SharedWriterTest, SaysWhatItOwnsAndHowFarItIs) {
  shared_.FailWrites(INT_MAX);
  shared_.Apply(2);
  Publish(UpdateKind::kUpsert, {1});
  Publish(UpdateKind::kUpsert, {2});
  Publish(UpdateKind::kUpsert, {3});
  Start();
  ASSERT_TRUE(AwaitCondition([&] {
    const SharedGroupStatistics statistics = writer_->Statistics();
    return statistics.partitions.size() == 1 && statistics.partitions[0].lag_records == 2;
  }));
  EXPECT_TRUE(writer_->Statistics().enabled);
  EXPECT_EQ(writer_->Statistics().partitions[0].table, "m/t");
  EXPECT_EQ(writer_->Statistics().takeovers, 1u);
  shared_.FailWrites(0);
  ASSERT_TRUE(AwaitCondition([&] { return writer_->Statistics().partitions[0].lag_records == 0; }));
}

// Catches: records of a table that does not go on, which filled the memory for all tables.
TEST_F(SharedWriterTest, LeavesATableWhoseLevelThreeStandsStill) {
  Publish(UpdateKind::kUpsert, {1});
  Start(/*memory_bytes_max=*/1);
  ASSERT_TRUE(AwaitCondition(
      [&] { return writer_->Statistics().left_tables == std::vector<std::string>{"m/t"}; }));
  EXPECT_TRUE(writer_->Statistics().partitions.empty());
  EXPECT_EQ(committed(), 0u);
  shared_.Apply(1);
  ASSERT_TRUE(AwaitCondition([&] { return committed() == 1; }));
  EXPECT_EQ(joins(), 2);
  ASSERT_TRUE(AwaitCondition([&] { return writer_->Statistics().left_tables.empty(); }));
}

// Catches: a join of the group, which costs all nodes a rebalance, whenever level 3 moves.
TEST_F(SharedWriterTest, ComesBackWhenLevelThreeHasWhatWaited) {
  for (Key key = 0; key < 6; ++key) Publish(UpdateKind::kUpsert, {key});
  {
    MutexLock lock(topic_.mutex);
    topic_.committed = 5;
  }
  Start(/*memory_bytes_max=*/1);
  ASSERT_TRUE(AwaitCondition([&] { return !writer_->Statistics().left_tables.empty(); }));
  for (uint64_t offset = 1; offset <= 5; ++offset) {
    shared_.Apply(offset);
    const int looks = shared_.looks();
    ASSERT_TRUE(AwaitCondition([&] { return shared_.looks() >= looks + 3; }));
  }
  EXPECT_EQ(joins(), 1);
  shared_.Apply(6);
  ASSERT_TRUE(AwaitCondition([&] { return committed() == 6; }));
  EXPECT_EQ(joins(), 2);
}

TEST_F(SharedWriterTest, ForgetsALeftTableThatIsUnloaded) {
  Publish(UpdateKind::kUpsert, {1});
  Start(/*memory_bytes_max=*/1);
  ASSERT_TRUE(AwaitCondition([&] { return !writer_->Statistics().left_tables.empty(); }));
  EXPECT_TRUE(world_.registry.FindOrAdd("m").Publish({}).ok());
  ASSERT_TRUE(AwaitCondition([&] { return writer_->Statistics().left_tables.empty(); }));
}

// What is owned is not known for a moment after a join.
TEST_F(SharedWriterTest, APartitionThatStaysIsNotTakenOverAgain) {
  const auto assign = [&](bool is_assigned) {
    MutexLock lock(topic_.mutex);
    topic_.is_assigned = is_assigned;
  };
  Start();
  ASSERT_TRUE(AwaitCondition([&] { return writer_->Statistics().partitions.size() == 1; }));
  EXPECT_FALSE(writer_->Statistics().partitions[0].lag_records.has_value()) << "nothing was read";
  assign(false);
  ASSERT_TRUE(AwaitCondition([&] { return writer_->Statistics().partitions.empty(); }));
  assign(true);
  ASSERT_TRUE(AwaitCondition([&] { return writer_->Statistics().partitions.size() == 1; }));
  EXPECT_EQ(writer_->Statistics().takeovers, 1u);
}

// Level 3 applies records slowly: the full memory holds the stream back, and no table is left to
// other nodes.
TEST_F(SharedWriterTest, WaitsForALevelThreeThatIsSlow) {
  for (Key key = 0; key < 50; ++key) Publish(UpdateKind::kUpsert, {key});
  Start(/*memory_bytes_max=*/1);
  for (uint64_t offset = 1; offset <= 50; ++offset) {
    shared_.Apply(offset);
    ASSERT_TRUE(AwaitCondition([&] { return committed() == offset; }));
  }
  EXPECT_EQ(shared_.written().size(), 50u);
}

// Catches: an end that waits until all that waits is written.
TEST_F(SharedWriterTest, EndsAfterTheWriteThatIsUnderWay) {
  constexpr size_t kChanges = 2000;
  for (size_t i = 0; i < kChanges; ++i)
    Publish(i % 2 == 0 ? UpdateKind::kUpsert : UpdateKind::kDelete, {1});
  shared_.Apply(kChanges);
  shared_.DelayWrites(std::chrono::milliseconds(5));
  Start();
  ASSERT_TRUE(AwaitCondition([&] { return !shared_.written().empty(); }));
  writer_ = nullptr;
  EXPECT_LT(shared_.written().size(), kChanges);
}

// Offsets of a new generation are of other records: what was fetched before is not written as
// theirs.
TEST_F(SharedWriterTest, ANewGenerationJoinsAnew) {
  Publish(UpdateKind::kUpsert, {1});
  Publish(UpdateKind::kUpsert, {2});
  shared_.Apply(1);
  Start();
  ASSERT_TRUE(AwaitCondition([&] { return committed() == 1; }));
  {
    MutexLock lock(topic_.mutex);
    topic_.payloads.clear();
    topic_.committed = 0;
  }
  shared_.BeginGeneration(kGeneration + 1);
  ASSERT_TRUE(AwaitCondition([&] { return joins() == 2; }));
  Publish(UpdateKind::kUpsert, {7});
  Publish(UpdateKind::kUpsert, {8});
  shared_.Apply(2);
  ASSERT_TRUE(AwaitCondition([&] { return committed() == 2; }));
  std::vector<Key> keys;
  for (size_t i = 1; i < shared_.written().size(); ++i) {
    const FakeShared::Written written = shared_.written()[i];
    EXPECT_EQ(written.to.generation, kGeneration + 1);
    keys.insert(keys.end(), written.upserts.begin(), written.upserts.end());
  }
  EXPECT_EQ(keys, (std::vector<Key>{7, 8}));
}

}  // namespace
}  // namespace hps
