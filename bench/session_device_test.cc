#include "bench/session_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "testing/host_device_cache/host_cache.h"

namespace hps::bench {
namespace {

// The host in the part of a device, so that the scenario runs where there is none.
class HostDevice final : public Device {
 public:
  absl::StatusOr<std::byte*> Allocate(size_t bytes) override {
    buffers_.emplace_back(bytes);
    return buffers_.back().data();
  }
  absl::Status CopyIn(std::byte* to, std::span<const std::byte> from) override {
    std::memcpy(to, from.data(), from.size());
    return absl::OkStatus();
  }
  absl::Status CopyOut(std::span<std::byte> to, const std::byte* from) override {
    std::memcpy(to.data(), from, to.size());
    return absl::OkStatus();
  }
  Stream stream() const override { return {}; }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<double> CopyUs(size_t, size_t) override { return 1.0; }
  absl::StatusOr<double> GatherUs(std::span<const uint64_t>, uint64_t, size_t, size_t) override {
    return 1.0;
  }

 private:
  std::vector<std::vector<std::byte>> buffers_;
};

TEST(SessionOnDeviceTest, GivesAFigureAndABoundForEachBatch) {
  const SessionOnDeviceSizes sizes{.row_count = 20'000, .batches = {100, 4000}, .runs = 3};
  auto cache = *MakeHostCache({.device = 0, .bytes_max = uint64_t{64} << 20});
  HostDevice device;
  const auto results = MeasureSessionOnDevice(*cache, device, sizes);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 5 * sizes.batches.size());
  for (const Result& result : *results) {
    EXPECT_GT(result.figure, 0);
    EXPECT_GT(result.bound.value_or(0), 0);
  }
}

TEST(SessionOnDeviceTest, TwoDevicesAreMeasuredAtOnce) {
  const SessionOnDeviceSizes sizes{.row_count = 20'000, .batches = {100, 4000}, .runs = 3};
  const auto first = *MakeHostCache({.device = 0, .bytes_max = uint64_t{64} << 20});
  const auto second = *MakeHostCache({.device = 1, .bytes_max = uint64_t{64} << 20});
  HostDevice devices[2];
  const auto results =
      MeasureSessionsOnTwo({first.get(), second.get()}, {&devices[0], &devices[1]}, sizes);
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->size(), 2 * sizes.batches.size());
  for (const Result& result : *results) EXPECT_GT(result.ratio.value_or(0), 0);
}

TEST(SessionOnDeviceTest, WithoutADeviceItIsAnErrorWithASentence) {
  const auto results = RunSessionOnDevice({.quick = true, .device = 0});
  if (results.ok()) GTEST_SKIP() << "there is a device";
  EXPECT_TRUE(absl::IsUnimplemented(results.status()) || absl::IsUnavailable(results.status()))
      << results.status();
}

}  // namespace
}  // namespace hps::bench
