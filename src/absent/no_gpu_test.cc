#include <gtest/gtest.h>

#include <string>

#include "tier/device_cache_factory.h"

namespace hps {
namespace {

TEST(NoGpuTest, AnswersWithASentenceThatNamesTheDevice) {
  const DeviceCacheFactory& factory = BuiltInDeviceCacheFactory();
  EXPECT_EQ(factory.Support().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(factory.Devices().status().code(), absl::StatusCode::kUnimplemented);
  const absl::Status status = factory.Make({.device = 3, .bytes_max = 1 << 20}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(status.message()).find("device 3: this build does not have"),
            std::string::npos)
      << status;
}

}  // namespace
}  // namespace hps
