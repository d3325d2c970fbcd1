#include "l1_gpu/gpu_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "l1_gpu/test_gpu.h"

namespace hps {
namespace {

using GpuCallTest = GpuTest;

// What the device has written for an earlier look-up must not be taken for the present one's, also
// when the number that tells them apart begins again.
TEST_F(GpuCallTest, ForgetsTheLastLookUpAlsoWhenItsNumberBeginsAgain) {
  std::vector<GpuCall*> given_back;
  auto call = GpuCall::Create(0, {.keys_max = 100, .staging_bytes = 1000},
                              [&](GpuCall* own) { given_back.push_back(own); });
  ASSERT_TRUE(call.ok()) << call.status();
  (*call)->SetGenerationForTest(UINT32_MAX - 2);
  for (size_t lookup = 1; lookup <= 6; ++lookup) {
    // Fewer keys every time: behind them lie records of the look-up before.
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
    EXPECT_THAT(std::vector<Key>(misses->keys.begin(), misses->keys.end()),
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

TEST_F(GpuCallTest, HoldsItsLeaseNotItsCapacity) {
  auto call = GpuCall::Create(0, {.keys_max = 4, .staging_bytes = 0}, [](GpuCall*) {});
  ASSERT_TRUE(call.ok()) << call.status();
  (*call)->Lease(1);
  const std::vector<Key> keys = {1, 2};
  std::vector<std::byte> rows(2);
  const DeviceCacheQuery query = {.keys = keys.data(),
                                  .key_count = 2,
                                  .rows = rows.data(),
                                  .row_bytes = 1,
                                  .row_stride_bytes = 1};
  EXPECT_EQ((*call)->Begin({&query, 1}, Stream()).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hps
