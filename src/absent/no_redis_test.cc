#include <gtest/gtest.h>

#include "tier/redis_tier.h"

namespace hps {
namespace {

TEST(NoRedis, SaysWhatIsMissing) {
  const auto made = MakeRedisTier({});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(made.status().message().find("HPS_REDIS"), std::string::npos);
  const auto opened = OpenHugectrRedis({.url = "redis://127.0.0.1:1"});
  EXPECT_EQ(opened.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(opened.status().message().find("HPS_REDIS"), std::string::npos);
}

}  // namespace
}  // namespace hps
