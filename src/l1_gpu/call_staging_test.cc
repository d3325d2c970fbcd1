#include "l1_gpu/call_staging.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "gpu/test_gpu.h"

namespace hps {
namespace {

TEST(StagingGrowthTest, GivesWhatIsLeftAndNoMore) {
  StagingGrowth growth(100);
  EXPECT_EQ(growth.Take(10, 60), 60u);
  EXPECT_EQ(growth.Take(50, 60), 0u);
  EXPECT_EQ(growth.Take(10, 60), 40u) << "the rest";
  EXPECT_EQ(growth.Take(1, 1), 0u);
}

using CallStagingTest = GpuTest;

TEST_F(CallStagingTest, GrowsByNeedAndKeepsWhatItHas) {
  StagingGrowth growth(uint64_t{1} << 20);
  CallStaging staging;
  ASSERT_EQ(staging.Create(1000, &growth), absl::OkStatus());
  std::byte* const first = staging.Take(1000);
  ASSERT_NE(first, nullptr);
  std::byte* const second = staging.Take(600);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(staging.bytes(), 2000u) << "twice as much";
  std::byte* const large = staging.Take(100'000);
  ASSERT_NE(large, nullptr);
  const size_t bytes = staging.bytes();
  staging.Reset();
  EXPECT_EQ(staging.Take(1000), first);
  EXPECT_EQ(staging.Take(100'000), large);
  EXPECT_EQ(staging.bytes(), bytes) << "the next lookup finds it";
}

TEST_F(CallStagingTest, EndsAtItsLimit) {
  StagingGrowth growth(5000);
  CallStaging staging;
  ASSERT_EQ(staging.Create(1000, &growth), absl::OkStatus());
  EXPECT_NE(staging.Take(900), nullptr);
  EXPECT_EQ(staging.Take(6000), nullptr);
  EXPECT_NE(staging.Take(4000), nullptr);
  EXPECT_EQ(staging.Take(2000), nullptr);
  EXPECT_NE(staging.Take(100), nullptr);

  CallStaging fixed;
  ASSERT_EQ(fixed.Create(0, nullptr), absl::OkStatus());
  EXPECT_EQ(fixed.Take(1), nullptr);
}

// Catches: rows of two blocks that lie one behind the other in the host's memory, taken for
// neighbours.
TEST_F(CallStagingTest, RowsThatAreNeighboursAreSoOnTheDevice) {
  StagingGrowth growth(uint64_t{1} << 30);
  CallStaging staging;
  constexpr size_t kRowBytes = 4096;
  ASSERT_EQ(staging.Create(uint64_t{1} << 20, &growth), absl::OkStatus());
  std::set<std::byte*> rows;
  for (int i = 0; i < 20'000; ++i) {
    std::byte* const row = staging.Take(kRowBytes);
    ASSERT_NE(row, nullptr);
    rows.insert(row);
  }
  for (std::byte* const row : rows) {
    if (rows.contains(row + kRowBytes)) {
      EXPECT_EQ(staging.DeviceOf(row + kRowBytes), staging.DeviceOf(row) + kRowBytes);
    }
  }
}

// Each row has a place of its own on the device, in every block.
TEST_F(CallStagingTest, RowsArriveInTheirPlacesOnTheDevice) {
  StagingGrowth growth(uint64_t{1} << 20);
  CallStaging staging;
  ASSERT_EQ(staging.Create(4096, &growth), absl::OkStatus());
  constexpr size_t kRowBytes = 1000;
  std::vector<std::byte*> rows;
  std::set<std::byte*> places;
  for (int row = 0; row < 60; ++row) {
    rows.push_back(staging.Take(kRowBytes));
    ASSERT_NE(rows.back(), nullptr);
    std::memset(rows.back(), row, kRowBytes);
    std::byte* const place = staging.DeviceOf(rows.back());
    ASSERT_NE(place, nullptr);
    EXPECT_EQ(staging.DeviceOf(rows.back() + kRowBytes - 1), place + kRowBytes - 1);
    EXPECT_TRUE(places.insert(place).second);
    ASSERT_EQ(staging.CopyAhead({rows.back(), 1, kRowBytes, kRowBytes}), absl::OkStatus());
  }
  ASSERT_EQ(staging.RecordCopies(), absl::OkStatus());
  ASSERT_EQ(WaitFor(staging.copied(), kNoDeadline, "copies"), absl::OkStatus());
  for (int row = 0; row < 60; ++row) {
    std::vector<std::byte> arrived(kRowBytes);
    ASSERT_EQ(cudaMemcpy(arrived.data(), staging.DeviceOf(rows[static_cast<size_t>(row)]),
                         kRowBytes, cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_EQ(arrived, std::vector<std::byte>(kRowBytes, std::byte(row)));
  }
  const std::byte elsewhere{};
  EXPECT_EQ(staging.DeviceOf(&elsewhere), nullptr);
}

TEST_F(CallStagingTest, HoldsPackedRowsOfItsOwn) {
  CallStaging staging;
  ASSERT_EQ(staging.Create(100, nullptr), absl::OkStatus());
  std::byte* const row = staging.Take(20);
  std::byte elsewhere[20] = {};
  EXPECT_TRUE(staging.Holds({row, 2, 10, 10}));
  EXPECT_FALSE(staging.Holds({row, 0, 10, 10}));
  EXPECT_FALSE(staging.Holds({row, 1, 8, 10}));
  EXPECT_FALSE(staging.Holds({elsewhere, 2, 10, 10}));
}

// Catches a stream that goes on before a large copy has arrived.
TEST_F(CallStagingTest, AStreamAwaitsTheCopies) {
  constexpr size_t kBytes = size_t{8} << 20;
  CallStaging staging;
  ASSERT_EQ(staging.Create(kBytes, nullptr), absl::OkStatus());
  EXPECT_FALSE(staging.has_copies());
  ASSERT_EQ(staging.RecordCopies(), absl::OkStatus()) << "of none";
  const CudaStream stream = *MakeStream(StreamPriority::kHigh);
  const PinnedBuffer arrived = *MakePinnedBuffer("rows", kBytes);
  std::byte* const row = staging.Take(kBytes);
  for (const int value : {1, 2, 3}) {
    std::memset(row, value, kBytes);
    ASSERT_EQ(staging.CopyAhead({row, 1, kBytes, kBytes}), absl::OkStatus());
    EXPECT_TRUE(staging.has_copies());
    ASSERT_EQ(staging.AwaitCopies(stream.get()), absl::OkStatus());
    ASSERT_EQ(cudaMemcpyAsync(arrived.data(), staging.DeviceOf(row), kBytes, cudaMemcpyDeviceToHost,
                              stream.get()),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream.get()), cudaSuccess);
    EXPECT_EQ(arrived.data()[kBytes - 1], std::byte(value));
    EXPECT_TRUE(*IsDone(staging.copied()));
  }
  staging.Reset();
  EXPECT_FALSE(staging.has_copies());
}

}  // namespace
}  // namespace hps
