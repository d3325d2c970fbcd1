#include "l1_gpu/gpu_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "gpu/test_gpu.h"

namespace {

thread_local bool copy_fails = false;  // the next copy fails, without being started

}  // namespace

extern "C" {
cudaError_t __real_cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream);
cudaError_t __wrap_cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  if (std::exchange(copy_fails, false)) return cudaErrorInvalidValue;
  return __real_cudaMemcpyAsync(to, from, bytes, kind, stream);
}
}

namespace hps {
namespace {

using GpuCallTest = GpuTest;

// Records that the device wrote for an earlier lookup must not be taken for the current one's, even
// after the generation has wrapped.
TEST_F(GpuCallTest, ForgetsTheLastLookUpAlsoWhenItsNumberBeginsAgain) {
  std::vector<GpuCall*> given_back;
  auto call = GpuCall::Create(0, {.keys_max = 100, .staging_bytes = 1000},
                              [&](GpuCall* own) { given_back.push_back(own); });
  ASSERT_TRUE(call.ok()) << call.status();
  (*call)->SetGenerationForTest(UINT32_MAX - 2);
  for (size_t lookup = 1; lookup <= 6; ++lookup) {
    // Fewer keys each time: records of the previous lookup follow them.
    std::vector<Key> keys(20 - 2 * lookup, -5);
    keys.front() = static_cast<Key>(lookup);
    std::vector<std::byte> rows(keys.size() * 3);
    const DeviceCacheQuery query = {.keys = keys.data(),
                                    .key_count = keys.size(),
                                    .rows = rows.data(),
                                    .row_bytes = 3,
                                    .row_stride_bytes = 3};
    ASSERT_TRUE((*call)->IsIdle());
    (*call)->Lease(20);
    const DeviceCallLease lease(call->get());
    ASSERT_EQ(lease->Begin({&query, 1}, Stream()), absl::OkStatus());
    const auto misses = lease->Misses(kNoDeadline);
    ASSERT_TRUE(misses.ok()) << misses.status();
    EXPECT_THAT(std::vector<Key>(misses->keys[0].begin(), misses->keys[0].end()),
                testing::UnorderedElementsAre(static_cast<Key>(lookup), -5));
    EXPECT_EQ(misses->positions[0], keys.size());
    const std::vector<KeyStatus> absent(2, KeyStatus::kAbsent);
    const DeviceRowPiece piece = {.statuses = absent};
    ASSERT_EQ(lease->Finish({&piece, 1}), absl::OkStatus());
    ASSERT_EQ(lease->Wait(kNoDeadline), absl::OkStatus());
    EXPECT_EQ(lease->counts(0)[KeyStatus::kAbsent], keys.size());
  }
  EXPECT_EQ(given_back.size(), 6u);
}

// Looks `keys` up on the host and expects all of them to be missing.
void ExpectAllMissing(GpuCall& call, const std::vector<Key>& keys) {
  std::vector<std::byte> rows(keys.size());
  const DeviceCacheQuery query = {.keys = keys.data(),
                                  .key_count = keys.size(),
                                  .rows = rows.data(),
                                  .row_bytes = 1,
                                  .row_stride_bytes = 1};
  call.Lease(keys.size());
  ASSERT_EQ(call.Begin({&query, 1}, Stream()), absl::OkStatus());
  const auto misses = call.Misses(kNoDeadline);
  ASSERT_TRUE(misses.ok()) << misses.status();
  EXPECT_THAT(std::vector<Key>(misses->keys[0].begin(), misses->keys[0].end()),
              testing::UnorderedElementsAreArray(keys));
}

// Catches counters that are not cleared because the next launch, which clears them, failed: the
// lookup after it would list its misses behind the old ones.
TEST_F(GpuCallTest, AFailedLaunchLeavesNothingToTheNextLookUp) {
  auto call = GpuCall::Create(0, {.keys_max = 16, .staging_bytes = 0}, [](GpuCall*) {});
  ASSERT_TRUE(call.ok()) << call.status();
  for (const int failures : {1, 2, 3}) {
    ExpectAllMissing(**call, {1, 2, 3, 4, 5});
    ExpectAllMissing(**call, {6, 7, 8});
    const Key key = 9;
    std::byte row{};
    const DeviceCacheQuery query = {
        .keys = &key, .key_count = 1, .rows = &row, .row_bytes = 1, .row_stride_bytes = 1};
    for (int i = 0; i < failures; ++i) {
      (*call)->Lease(1);
      copy_fails = true;
      EXPECT_EQ((*call)->Begin({&query, 1}, Stream()).code(), absl::StatusCode::kInternal);
      ASSERT_FALSE(copy_fails) << "no copy was asked for";
    }
    ExpectAllMissing(**call, {10, 11});
    ExpectAllMissing(**call, {12, 13, 14, 15});
  }
}

// Catches a launch that takes an older error of the calling thread for its own.
TEST_F(GpuCallTest, AnErrorOfTheCallersIsNotTheLookUps) {
  auto call = GpuCall::Create(0, {.keys_max = 16, .staging_bytes = 0}, [](GpuCall*) {});
  ASSERT_TRUE(call.ok()) << call.status();
  ASSERT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  ExpectAllMissing(**call, {1, 2, 3});
  (void)cudaGetLastError();
}

TEST_F(GpuCallTest, RefusesAStreamThatIsBeingCaptured) {
  auto call = GpuCall::Create(0, {.keys_max = 16, .staging_bytes = 0}, [](GpuCall*) {});
  ASSERT_TRUE(call.ok()) << call.status();
  ExpectAllMissing(**call, {1, 2, 3, 4, 5});
  const CudaStream stream = *MakeStream(StreamPriority::kLow);
  const Key key = 1;
  std::byte row{};
  const DeviceCacheQuery query = {
      .keys = &key, .key_count = 1, .rows = &row, .row_bytes = 1, .row_stride_bytes = 1};
  (*call)->Lease(1);
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ((*call)->Begin({&query, 1}, Stream{stream.get()}).code(),
            absl::StatusCode::kInvalidArgument);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  size_t node_count = 1;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &node_count), cudaSuccess);
  EXPECT_EQ(node_count, 0u);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ExpectAllMissing(**call, {6, 7, 8});
  ExpectAllMissing(**call, {9});
}

}  // namespace
}  // namespace hps
