#include "tier/device_cache_factory.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

// Holds with and without a GPU: without one, this is the error on a node whose driver is gone.
TEST(DeviceCacheFactoryTest, IsUnavailableWhereThereIsNoSuchDevice) {
  const absl::StatusOr<std::vector<int>> devices = BuiltInDeviceCacheFactory().Devices();
  if (devices.ok()) {
    EXPECT_FALSE(devices->empty());
  } else {
    EXPECT_EQ(devices.status().code(), absl::StatusCode::kUnavailable) << devices.status();
  }
  const int absent = devices.ok() ? devices->back() + 1 : 0;
  const absl::Status status =
      BuiltInDeviceCacheFactory().Make({.device = absent, .bytes_max = 1 << 20}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace hps
