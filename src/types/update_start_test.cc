#include "types/update_start.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(ParseUpdateStartTest, WordsAndTimes) {
  EXPECT_EQ(*ParseUpdateStart("import"), std::nullopt);
  EXPECT_EQ(*ParseUpdateStart("earliest"), (UpdateStart{.kind = UpdateStart::Kind::kBeginning}));
  EXPECT_EQ(*ParseUpdateStart("latest"), (UpdateStart{.kind = UpdateStart::Kind::kEnd}));
  EXPECT_EQ(*ParseUpdateStart("2023-11-14T22:13:20.5Z"),
            (UpdateStart{.kind = UpdateStart::Kind::kTime, .time_ms = 1'700'000'000'500}));
  EXPECT_EQ(*ParseUpdateStart("2023-11-14T23:13:20+01:00"),
            (UpdateStart{.kind = UpdateStart::Kind::kTime, .time_ms = 1'700'000'000'000}));
}

TEST(ParseUpdateStartTest, RefusesOtherTextAndQuotesIt) {
  for (const char* text : {"", "now", "1700000000", "2023-11-14", "2023-13-14T22:13:20Z"}) {
    const absl::Status status = ParseUpdateStart(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(status.message().find("'" + std::string(text) + "' is not"), std::string::npos)
        << status;
  }
  EXPECT_LT(ParseUpdateStart(std::string(10'000, 'x')).status().message().size(), 200U);
}

TEST(FormatUpdateStartTest, IsReadBack) {
  for (const char* text : {"earliest", "latest", "2023-11-14T22:13:20.500Z"})
    EXPECT_EQ(FormatUpdateStart(**ParseUpdateStart(text)), text);
}

}  // namespace
}  // namespace hps
