#include "testing/host_device_cache/host_call.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace hps {
namespace {

// The contract suite tests lookups; this file tests what only the pool sees of calls.
TEST(HostCallTest, IsGivenBackByItsLeaseAndForgetsTheLastLookUp) {
  std::vector<HostCall*> given_back;
  HostCall call(4, {}, [&](HostCall* own) { given_back.push_back(own); });
  const std::vector<Key> keys = {3, 1, 3};
  std::vector<std::byte> rows(3);
  const DeviceCacheQuery query{.keys = keys.data(),
                               .key_count = 3,
                               .rows = rows.data(),
                               .row_bytes = 1,
                               .row_stride_bytes = 1};
  for (size_t lookups = 1; lookups <= 2; ++lookups) {
    call.Lease(3);
    {
      const DeviceCallLease lease(&call);
      ASSERT_EQ(lease->Begin({&query, 1}, Stream()), absl::OkStatus());
      const auto misses = lease->Misses(kNoDeadline);
      ASSERT_TRUE(misses.ok());
      EXPECT_EQ(std::vector<Key>(misses->keys[0].begin(), misses->keys[0].end()),
                (std::vector<Key>{1, 3}));
      EXPECT_EQ(misses->positions[0], 3u);
      EXPECT_EQ(lease->Staging(0, 3).row_count, 0u);
    }
    EXPECT_EQ(given_back.size(), lookups);
  }
  EXPECT_EQ(given_back.front(), &call);
}

// As on a device: a row that is read as copied ahead is the one that was copied in this lookup.
TEST(HostCallTest, ReadsRowsAsTheyWereWhenCopiedAhead) {
  std::array<std::byte, 4> staging{};
  HostCall call(4, staging, [](HostCall*) {});
  const Key key = 7;
  std::byte row{};
  const DeviceCacheQuery query{
      .keys = &key, .key_count = 1, .rows = &row, .row_bytes = 1, .row_stride_bytes = 1};
  for (const bool copied_ahead : {true, false}) {
    call.Lease(1);
    const DeviceCallLease lease(&call);
    ASSERT_EQ(lease->Begin({&query, 1}, Stream()), absl::OkStatus());
    const HostRows rows = lease->Staging(0, 1);
    ASSERT_EQ(rows.row_count, 1u);
    *rows.row(0) = std::byte{42};
    if (copied_ahead) {
      ASSERT_EQ(lease->CopyAhead(rows), absl::OkStatus());
    }
    const KeyStatus hit = KeyStatus::kHitL2;
    const DeviceRowPiece piece{.statuses = {&hit, 1}, .rows = rows, .on_device = true};
    ASSERT_EQ(lease->Finish({&piece, 1}), absl::OkStatus());
    EXPECT_EQ(row == std::byte{42}, copied_ahead);
  }
}

TEST(HostCallTest, HoldsItsLeaseNotItsCapacity) {
  HostCall call(4, {}, [](HostCall*) {});
  call.Lease(1);
  const std::vector<Key> keys = {1, 2};
  std::vector<std::byte> rows(2);
  const DeviceCacheQuery query{.keys = keys.data(),
                               .key_count = 2,
                               .rows = rows.data(),
                               .row_bytes = 1,
                               .row_stride_bytes = 1};
  EXPECT_DEATH(call.Begin({&query, 1}, Stream()).IgnoreError(), "keys_leased");
}

}  // namespace
}  // namespace hps
