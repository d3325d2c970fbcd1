#include "l1_gpu/call_buffers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <semaphore>
#include <vector>

#include "base/limits.h"
#include "gpu/test_gpu.h"

namespace hps {
namespace {

using CallBuffersTest = GpuTest;

// Catches parts that overlap: each is filled with its own byte value and then checked.
TEST_F(CallBuffersTest, PinnedPartsDontOverlapAndHoldWhatTheyPromise) {
  auto made = CallBuffers::Create({.keys_max = 1001, .staging_bytes = 12'345});
  ASSERT_TRUE(made.ok()) << made.status();
  CallBuffers& buffers = **made;
  struct Part {
    void* begin;
    size_t bytes;
  };
  const std::vector<Part> parts = {
      {buffers.misses.records, 1001 * sizeof(MissRecord)},
      {buffers.misses.duplicate_records, 1001 * sizeof(DuplicateRecord)},
      {buffers.keys.pinned, 1001 * sizeof(Key)},
      {buffers.statuses.pinned, 1001},
      {buffers.counts.pinned, kTablesPerCallMax * kKeyStatusCount * sizeof(uint32_t)},
      {buffers.output.pinned, kCallOutputBytes},
      {buffers.halves[0].bounce.pinned, kCallBounceBytes / 2},
      {buffers.halves[1].bounce.pinned, kCallBounceBytes / 2},
      {buffers.staging.Take(12'345), 12'345}};
  for (size_t i = 0; i < parts.size(); ++i)
    std::memset(parts[i].begin, static_cast<int>(i + 1), parts[i].bytes);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto* bytes = static_cast<const std::byte*>(parts[i].begin);
    EXPECT_TRUE(std::all_of(bytes, bytes + parts[i].bytes,
                            [&](std::byte b) { return b == std::byte(i + 1); }))
        << "part " << i;
  }
}

TEST_F(CallBuffersTest, TheMissesAreZeroAtFirstAndWhenAskedFor) {
  auto made = CallBuffers::Create({.keys_max = 100, .staging_bytes = 0});
  ASSERT_TRUE(made.ok()) << made.status();
  CallBuffers& buffers = **made;
  for (int round = 0; round < 2; ++round) {
    std::vector<uint64_t> claims(200, 1);
    ASSERT_EQ(cudaMemcpy(claims.data(), buffers.misses.claims, 200 * sizeof(uint64_t),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_EQ(claims, std::vector<uint64_t>(200, 0));
    for (size_t i = 0; i < 100; ++i) ASSERT_EQ(buffers.misses.records[i].check, 0u);
    ASSERT_EQ(cudaMemset(buffers.misses.claims, 7, 200 * sizeof(uint64_t)), cudaSuccess);
    buffers.misses.records[50].check = 3;
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    ASSERT_EQ(buffers.ZeroMisses(), absl::OkStatus());
  }
}

TEST_F(CallBuffersTest, OutputGrowsToTheLargestLookUp) {
  auto made = CallBuffers::Create({.keys_max = 1, .staging_bytes = 0});
  ASSERT_TRUE(made.ok()) << made.status();
  CallBuffers& buffers = **made;
  const CudaStream another = *MakeStream(StreamPriority::kLow);
  const cudaStream_t user = another.get();
  EXPECT_EQ(buffers.GrowOutput(0, user), absl::OkStatus());
  EXPECT_EQ(buffers.output.device.bytes(), 0u);
  ASSERT_EQ(buffers.GrowOutput(3 << 20, user), absl::OkStatus());
  const std::byte* const memory = buffers.output.device.data();
  EXPECT_EQ(buffers.GrowOutput(100, user), absl::OkStatus());
  EXPECT_EQ(buffers.output.device.data(), memory);
  EXPECT_EQ(buffers.GrowOutput(kCallHostRowsBytesMax + 1, user).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(buffers.output.device.data(), memory);
  EXPECT_EQ(buffers.GrowOutput(5 << 20, user), absl::OkStatus());
  EXPECT_GE(buffers.output.device.bytes(), size_t{5} << 20);
  EXPECT_EQ(cudaMemsetAsync(buffers.output.device.data(), 1, size_t{5} << 20, user), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(user), cudaSuccess);
}

// Catches memory that is freed or allocated behind all other work of the device.
TEST_F(CallBuffersTest, OutputGrowsWhileTheDeviceIsBusy) {
  auto made = CallBuffers::Create({.keys_max = 1, .staging_bytes = 0});
  ASSERT_TRUE(made.ok()) << made.status();
  CallBuffers& buffers = **made;
  const cudaStream_t user = buffers.stream.get();
  ASSERT_EQ(buffers.GrowOutput(1, user), absl::OkStatus());
  struct Work {
    std::binary_semaphore may_end{0};
    std::atomic<bool> ended = false;
  } work;
  const auto hold_up = [](void* given) {
    auto* const held = static_cast<Work*>(given);
    (void)held->may_end.try_acquire_for(std::chrono::seconds(10));
    held->ended = true;
  };
  const CudaStream busy = *MakeStream(StreamPriority::kLow);
  ASSERT_EQ(cudaLaunchHostFunc(busy.get(), hold_up, &work), cudaSuccess);
  EXPECT_EQ(buffers.GrowOutput(9 << 20, user), absl::OkStatus());
  EXPECT_FALSE(work.ended);
  work.may_end.release();
  EXPECT_EQ(cudaStreamSynchronize(busy.get()), cudaSuccess);
}

}  // namespace
}  // namespace hps
