#include "inference/network_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "onnx/test_models.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

TEST(NetworkCheckTest, WithoutAProgramNothingIsChecked) {
  SetNetworkCheckProgram(nullptr);
  EXPECT_TRUE(CheckNetworkApart({.onnx = "no network"}).ok());
}

TEST(NetworkCheckTest, SaysHowTheProgramEnded) {
  SetNetworkCheckProgram("/bin/true");
  EXPECT_TRUE(CheckNetworkApart({.onnx = "anything"}).ok());
  SetNetworkCheckProgram("/bin/false");
  const absl::Status refused = CheckNetworkApart({.onnx = "anything"});
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("status 1"));
  SetNetworkCheckProgram("/no/such/program");
  EXPECT_EQ(CheckNetworkApart({.onnx = "anything"}).code(), absl::StatusCode::kUnavailable);
  SetNetworkCheckProgram(nullptr);
}

}  // namespace
}  // namespace hps
