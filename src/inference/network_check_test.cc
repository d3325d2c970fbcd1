#include "inference/network_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "network/onnx/test_models.h"

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

// Catches: a network that nobody has tried counts as good. A process inherits from the one that
// starts it that SIGCHLD is ignored; the kernel then keeps no result of its children.
TEST(NetworkCheckTest, AResultThatIsLostIsAnError) {
  for (const char* program : {"/bin/false", "/bin/true"}) {
    SetNetworkCheckProgram(program);
    const auto before = std::signal(SIGCHLD, SIG_IGN);
    const absl::Status lost = CheckNetworkApart({.onnx = "anything"});
    std::signal(SIGCHLD, before);
    EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(lost.message()), HasSubstr("SIGCHLD"));
  }
  SetNetworkCheckProgram(nullptr);
}

}  // namespace
}  // namespace hps
