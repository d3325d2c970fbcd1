#include "update/row_refresh.h"

#include <gtest/gtest.h>

#include "update/test_update_world.h"

namespace hps {
namespace {

using World = UpdateWorld;

// Three pieces of keys. The first key of each piece is held in level 1 with an old row.
class RowRefreshTest : public ::testing::Test {
 protected:
  RowRefreshTest() {
    world_.Load();
    other_table_ = *other_cache_->OpenTable(World::kRowBytes, 64 << 10);
    for (size_t i = 0; i < kPieces * kPieceKeys; ++i) keys_.push_back(static_cast<Key>(i));
    for (size_t piece = 0; piece < kPieces; ++piece) held_.push_back(keys_[piece * kPieceKeys]);
    WriteL3(1);
    world_.Promote(held_);
    WriteL3(2);
    EXPECT_TRUE(world_.live().l2()[0].table().Clear().ok());
  }

  void WriteL3(float value) {
    std::vector<std::byte> rows = World::Rows(held_.size(), value);
    EXPECT_TRUE(
        world_.live().l3().Write({.upserts = {.keys = held_, .rows = World::View(rows)}}).ok());
  }
  void AttachOther() {
    std::vector<std::byte> rows = World::Rows(held_.size(), 1);
    EXPECT_TRUE(other_table_->InsertIfAbsent({.keys = held_, .rows = World::View(rows)}, 0).ok());
    other_ = other_table_.get();
    world_.live().AttachL1(1, std::move(other_table_));
  }
  std::vector<float> Shown() {
    std::vector<float> shown;
    for (const Key key : held_) shown.push_back(world_.InL1(key));
    return shown;
  }

  static constexpr size_t kPieces = 3;
  static constexpr size_t kPieceKeys = kWriterStagingBytes / 8 / World::kRowBytes;
  std::unique_ptr<DeviceCache> other_cache_ = *MakeHostCache({.device = 1, .bytes_max = 1 << 20});
  World world_;
  std::unique_ptr<DeviceCacheTable> other_table_;
  const DeviceCacheTable* other_ = nullptr;
  std::vector<Key> keys_;
  std::vector<Key> held_;
};

TEST_F(RowRefreshTest, AloneItDoesEverything) {
  RowRefresh refresh({.live = &world_.live(), .keys = keys_});
  EXPECT_EQ(*refresh.Run(nullptr, TimePoint::max()), keys_.size());
  EXPECT_EQ(Shown(), (std::vector<float>{2, 2, 2}));
  EXPECT_EQ(refresh.rows_refreshed(), keys_.size());
  EXPECT_FALSE(refresh.failed(0));
}

TEST_F(RowRefreshTest, HelpersTakePieces) {
  auto workers = *WorkerPool::Create({.name = "helpers", .thread_count = 2});
  ForkJoinPool teams({.executor = workers.get(), .helpers_max = 2});
  for (float value = 3; value < 20; ++value) {
    WriteL3(value);
    RowRefresh refresh({.live = &world_.live(), .keys = keys_});
    ASSERT_EQ(*refresh.Run(&teams, TimePoint::max()), keys_.size());
    ASSERT_EQ(Shown(), (std::vector<float>{value, value, value}));
  }
  workers.reset();  // it may still have helpers of the pool's teams
}

TEST_F(RowRefreshTest, EndsBehindAPieceWhenItsTimeIsOver) {
  RowRefresh refresh({.live = &world_.live(), .keys = keys_});
  EXPECT_EQ(*refresh.Run(nullptr, TimePoint::min()), kPieceKeys);
  EXPECT_EQ(Shown(), (std::vector<float>{2, 1, 1}));
}

TEST_F(RowRefreshTest, ErasesWhatIsAbsent) {
  ASSERT_TRUE(world_.live().l3().Write({.deletes = {&held_[1], 1}}).ok());
  RowRefresh refresh({.live = &world_.live(), .keys = keys_});
  EXPECT_TRUE(refresh.Run(nullptr, TimePoint::max()).ok());
  EXPECT_EQ(Shown(), (std::vector<float>{2, World::kMissing, 2}));
}

TEST_F(RowRefreshTest, RowsThatCannotBeReadAreAnError) {
  world_.store.faults.Plan(TierOperation::kFetch, {.times = 1});
  RowRefresh refresh({.live = &world_.live(), .keys = keys_});
  EXPECT_TRUE(absl::IsUnavailable(refresh.Run(nullptr, TimePoint::max()).status()));
  EXPECT_FALSE(refresh.failed(0)) << "the cache has done nothing wrong";
  EXPECT_EQ(Shown(), (std::vector<float>{1, 1, 1}));
}

TEST_F(RowRefreshTest, EveryCacheGetsTheRowsAlsoIfTheFirstFails) {
  AttachOther();
  for (const bool first_fails : {false, true}) {
    world_.l1_faults.Clear();
    if (first_fails) world_.l1_faults.Plan(TierOperation::kUpdate, {.times = 1});
    WriteL3(first_fails ? 6 : 5);
    const uint64_t before = other_->Statistics().updates;
    RowRefresh refresh({.live = &world_.live(), .keys = keys_});
    ASSERT_TRUE(refresh.Run(nullptr, TimePoint::max()).ok());
    EXPECT_EQ(refresh.failed(0), first_fails);
    EXPECT_FALSE(refresh.failed(1));
    EXPECT_EQ(other_->Statistics().updates - before, held_.size());
    EXPECT_EQ(Shown(), (std::vector<float>{5, 5, 5})) << "a cache that failed is left alone";
  }
}

TEST_F(RowRefreshTest, OneCacheAlone) {
  AttachOther();
  RowRefresh refresh({.live = &world_.live(), .keys = keys_, .cache = 1});
  ASSERT_TRUE(refresh.Run(nullptr, TimePoint::max()).ok());
  EXPECT_EQ(other_->Statistics().updates, held_.size());
  EXPECT_EQ(Shown(), (std::vector<float>{1, 1, 1}));
}

}  // namespace
}  // namespace hps
