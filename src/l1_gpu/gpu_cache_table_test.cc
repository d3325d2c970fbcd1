#include "l1_gpu/gpu_cache_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/byte_budget.h"
#include "gpu/test_gpu.h"
#include "hps/table_spec.h"
#include "testing/contracts/device_cache_contract_fixture.h"

namespace hps {
namespace {

TEST(GpuCacheTableSizeTest, SlabsFitIntoTheBytesThatTheyNeedAndIntoNoLess) {
  for (size_t row_bytes : {size_t{1}, size_t{128}, size_t{1000}, kRowBytesMax}) {
    for (uint64_t slabs : {uint64_t{2}, uint64_t{3}, uint64_t{37'449}, uint64_t{kSlabsMax}}) {
      const uint64_t bytes = GpuCacheTable::BytesOf(row_bytes, slabs);
      EXPECT_EQ(GpuCacheTable::SlabsWithin(row_bytes, bytes), slabs) << row_bytes;
      EXPECT_EQ(GpuCacheTable::SlabsWithin(row_bytes, bytes - 1), slabs - 1) << row_bytes;
      EXPECT_GE(bytes, slabs * (sizeof(Slab) + kSlabSlots * row_bytes) + sizeof(TableCounters));
    }
  }
  EXPECT_EQ(GpuCacheTable::SlabsWithin(1, 0), 0u);
  // A table never has more slots than the kernels can number: the largest number means none.
  EXPECT_LT(uint64_t{kSlabsMax} * kSlabSlots, uint64_t{UINT32_MAX});
  EXPECT_EQ(GpuCacheTable::BytesOf(1, uint64_t{kSlabsMax} + 1), UINT64_MAX);
  EXPECT_EQ(GpuCacheTable::SlabsWithin(1, UINT64_MAX), uint64_t{kSlabsMax});
}

// A table with its own writer, whose staging the test can fill.
class GpuCacheTableTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    auto writer = Writer::Create(0, 64 << 10);
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
    write_sequence_ = *MakeDeviceBuffer("write sequence", sizeof(WriteSequence));
    ASSERT_EQ(cudaMemset(write_sequence_.data(), 0, write_sequence_.bytes()), cudaSuccess);
    auto table = GpuCacheTable::Create(64, 100,
                                       {.writer = writer_.get(),
                                        .write_sequence = write_sequence_.at<WriteSequence>(0),
                                        .wait_for_calls = [] { return true; },
                                        .budget = {}});
    ASSERT_TRUE(table.ok()) << table.status();
    table_ = {*std::move(table), 1};
  }

  std::vector<Writer::Step> FillStaging() {
    std::vector<Writer::Step> steps;
    for (size_t i = 0; i < Writer::kStepsInFlight; ++i)
      steps.push_back(*writer_->Reserve(writer_->step_bytes_max(), kNoDeadline));
    return steps;
  }

  std::unique_ptr<Writer> writer_;
  DeviceBuffer write_sequence_;
  StampedTable table_;
};

TEST_F(GpuCacheTableTest, WithoutRoomAPromotionIsRefusedAtOnceAndAChangeWaits) {
  StampedBatch batch(table_, {1, 2}, 1);
  {
    const std::vector<Writer::Step> full = FillStaging();
    EXPECT_EQ(table_.table->InsertIfAbsent(batch.batch(), 0).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(table_.table->Update(batch.batch(), RealClock().Now()).code(),
              absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(table_.table->Erase(batch.keys(), RealClock().Now()).code(),
              absl::StatusCode::kDeadlineExceeded);
    std::vector<Key> keys(DeviceCacheTable::kDumpKeysMin);
    uint64_t cursor = 0;
    EXPECT_EQ(table_.table->Dump(&cursor, keys, RealClock().Now()).status().code(),
              absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(cursor, 0u);
    EXPECT_EQ(table_.table->Statistics().errors, 3u);
  }
  EXPECT_EQ(*table_.table->InsertIfAbsent(batch.batch(), 0), 0u);
  EXPECT_EQ(table_.table->Update(batch.batch(), kNoDeadline), absl::OkStatus());
  EXPECT_EQ(table_.table->Flush(kNoDeadline), absl::OkStatus());
  EXPECT_EQ(table_.table->Statistics().entries, 2u);
  EXPECT_EQ(table_.table->Statistics().updates, 2u);
}

// Catches a raise that returns while an older insertion may still become visible: an earlier step
// blocks the writer before it.
TEST_F(GpuCacheTableTest, RaisingWaitsForTheInsertionsThatWereLetIn) {
  StampedBatch batch(table_, {1, 2}, 1);
  EXPECT_EQ(table_.table->RaiseWatermarks(batch.keys(), 1, RealClock().Now()), absl::OkStatus())
      << "nothing to wait for";
  {
    const Writer::Step before = *writer_->Reserve(1, kNoDeadline);
    EXPECT_EQ(*table_.table->InsertIfAbsent(batch.batch(), 1), 0u);
    EXPECT_EQ(table_.table->RaiseWatermarks(batch.keys(), 2, RealClock().Now()).code(),
              absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(table_.table->Flush(RealClock().Now()).code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(table_.table->RaiseWatermarks(batch.keys(), 2, kNoDeadline), absl::OkStatus());
  EXPECT_EQ(*table_.table->InsertIfAbsent(batch.batch(), 1), 2u);
}

TEST_F(GpuCacheTableTest, GivesItsBudgetAndItsMemoryBackWhenItDies) {
  ByteBudget budget("a cache", 100);
  const size_t free_before = FreeDeviceBytes();
  auto table = GpuCacheTable::Create(1000, 100'000,
                                     {.writer = writer_.get(),
                                      .write_sequence = write_sequence_.at<WriteSequence>(0),
                                      .wait_for_calls = [] { return true; },
                                      .budget = *budget.Lend(100)});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_LT(FreeDeviceBytes(), free_before);
  EXPECT_FALSE(budget.Lend(1).ok());
  table->reset();
  EXPECT_TRUE(budget.Lend(100).ok());
  EXPECT_GE(FreeDeviceBytes(), free_before);
}

// Catches a budget that lends bytes which the device has not freed yet.
TEST_F(GpuCacheTableTest, KeepsItsBudgetWithMemoryThatLookUpsMayStillUse) {
  ByteBudget budget("a cache", 100);
  auto table = GpuCacheTable::Create(64, 100,
                                     {.writer = writer_.get(),
                                      .write_sequence = write_sequence_.at<WriteSequence>(0),
                                      .wait_for_calls = [] { return false; },
                                      .budget = *budget.Lend(60)});
  ASSERT_TRUE(table.ok()) << table.status();
  table->reset();
  EXPECT_TRUE(budget.Lend(40).ok());
  EXPECT_FALSE(budget.Lend(41).ok());
}

// Catches: memory that is freed while a writer uses it, or a budget that counts it as free; and an
// unlimited wait for the device.
TEST_F(GpuCacheTableTest, LeavesItsMemoryToADeviceThatHangs) {
  auto writer = *Writer::Create(0, 64 << 10, kHangTimeoutOfTests);
  ByteBudget budget("a cache", 100);
  const auto make = [&](uint64_t budget_bytes) {
    return GpuCacheTable::Create(64, 100,
                                 {.writer = writer.get(),
                                  .write_sequence = write_sequence_.at<WriteSequence>(0),
                                  .wait_for_calls = [] { return true; },
                                  .budget = *budget.Lend(budget_bytes)});
  };
  auto first = make(10);
  auto second = make(20);
  ASSERT_TRUE(first.ok() && second.ok());
  std::optional<StreamHold> hold;
  ASSERT_EQ(writer->Submit(kNoDeadline,
                           [&](cudaStream_t stream) {
                             hold.emplace(stream);
                             return absl::OkStatus();
                           }),
            absl::OkStatus());
  first->reset();
  second->reset();
  EXPECT_EQ(make(30).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(budget.Lend(71).ok());
  EXPECT_TRUE(budget.Lend(70).ok());
  hold.reset();
  auto after = make(70);
  ASSERT_TRUE(after.ok()) << after.status();
  after->reset();
  EXPECT_TRUE(budget.Lend(70).ok()) << "it answers again";
}

}  // namespace
}  // namespace hps
