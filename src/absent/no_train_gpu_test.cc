#include <gtest/gtest.h>

#include <string>

#include "train/table_set.h"

namespace hps {
namespace {

TEST(NoTrainGpu, SaysWhatIsMissing) {
  const auto set = MakeDeviceTableSet(0, {{.name = "m/t", .dim = 4}});
  EXPECT_EQ(set.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(std::string(set.status().message()).find("make wheel-gpu"), std::string::npos);
}

}  // namespace
}  // namespace hps
