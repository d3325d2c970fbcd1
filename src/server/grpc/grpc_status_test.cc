#include "server/grpc/grpc_status.h"

#include <gtest/gtest.h>

namespace hps::server {
namespace {

TEST(GrpcStatusTest, CodesAreNumbers) {
  EXPECT_EQ(StatusCodeText(absl::StatusCode::kOk), "0");
  EXPECT_EQ(StatusCodeText(absl::StatusCode::kResourceExhausted), "8");
  EXPECT_EQ(StatusCodeText(absl::StatusCode::kUnauthenticated), "16");
  EXPECT_EQ(StatusCodeText(static_cast<absl::StatusCode>(17)), "2");
}

TEST(GrpcStatusTest, MessagesArePercentEncodedAndBounded) {
  EXPECT_EQ(StatusMessageText(""), "");
  EXPECT_EQ(StatusMessageText("a b~"), "a b~");
  EXPECT_EQ(StatusMessageText("100%\r\n\x7f\xc3\xa4"), "100%25%0D%0A%7F%C3%A4");
  EXPECT_EQ(StatusMessageText(std::string(5000, 'x')).size(), 1024u);
}

TEST(GrpcStatusTest, TimeoutsHaveADigitAndAUnit) {
  using std::chrono::hours;
  using std::chrono::nanoseconds;
  EXPECT_EQ(ParseTimeout("1n"), nanoseconds(1));
  EXPECT_EQ(ParseTimeout("100u"), std::chrono::microseconds(100));
  EXPECT_EQ(ParseTimeout("20m"), std::chrono::milliseconds(20));
  EXPECT_EQ(ParseTimeout("0S"), nanoseconds(0));
  EXPECT_EQ(ParseTimeout("99999999M"), std::chrono::minutes(99'999'999));
  EXPECT_EQ(ParseTimeout("2H"), hours(2));
  EXPECT_EQ(ParseTimeout("99999999H"), hours(24 * 366));
  for (const char* none : {"", "1", "S", "1s", "-1S", "123456789S", "1 S", "x1S", "1.5S", "+1S"}) {
    EXPECT_EQ(ParseTimeout(none), std::nullopt) << none;
  }
}

}  // namespace
}  // namespace hps::server
