#include "cli/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace hps::cli {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ParseCountTest, OnlyDecimalDigitsWithinTheLimits) {
  EXPECT_EQ(*ParseCount("0", 0, 10), 0u);
  EXPECT_EQ(*ParseCount("10", 1, 10), 10u);
  EXPECT_EQ(*ParseCount("007", 0, 10), 7u);
  EXPECT_EQ(*ParseCount("18446744073709551615", 0, UINT64_MAX), UINT64_MAX);
  for (const char* text : {"", "-1", "+1", " 1", "1 ", "0x1", "1e1", "1.0", "1k", "11", "0",
                           "18446744073709551616", "99999999999999999999999"}) {
    const absl::Status status = ParseCount(text, 1, 10).status();
    EXPECT_EQ(status.code(), kInvalid) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + std::string(text)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("from 1 to 10"));
  }
}

TEST(ParseNumberTest, DecimalsAndWhatIsNotFinite) {
  EXPECT_EQ(*ParseNumber("-1.5e3"), -1500.0);
  EXPECT_EQ(*ParseNumber("-inf"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(*ParseNumber("nan")));
  for (const char* text : {"", "x", "1,5", "0x1p3", "+1", "1 "})
    EXPECT_EQ(ParseNumber(text).status().code(), kInvalid) << text;
  EXPECT_THAT(std::string(ParseNumber("1e999").status().message()), HasSubstr("beyond"));
}

TEST(ParseDeviceTest, MinusOneOrANumber) {
  EXPECT_EQ(*ParseDevice("-1"), -1);
  EXPECT_EQ(*ParseDevice("1023"), 1023);
  for (const char* text : {"", "-2", "1024", "gpu0", "0x1"})
    EXPECT_EQ(ParseDevice(text).status().code(), kInvalid) << text;
}

TEST(CheckModelNameTest, WhatTheStoreWouldRefuse) {
  EXPECT_TRUE(CheckModelName("dlrm-1_A").ok());
  EXPECT_TRUE(CheckModelName(std::string(120, 'a')).ok());
  for (const std::string& text : {std::string(), std::string("a/b"), std::string("a b"),
                                  std::string("../x"), std::string(121, 'a')})
    EXPECT_EQ(CheckModelName(text).code(), kInvalid) << text;
}

TEST(ParseKeysTest, EveryBitPattern) {
  const auto keys = ParseKeys(
      "0,-1,9223372036854775807,9223372036854775808,18446744073709551615,-9223372036854775808");
  ASSERT_TRUE(keys.ok()) << keys.status();
  constexpr Key kMin = std::numeric_limits<Key>::min();
  constexpr Key kMax = std::numeric_limits<Key>::max();
  EXPECT_EQ(*keys, (std::vector<Key>{0, -1, kMax, kMin, -1, kMin}));
  EXPECT_TRUE(ParseKeys("")->empty());
}

TEST(ParseKeysTest, WhatIsNoKey) {
  for (const char* text : {",", "1,", ",1", "1,,2", "x", "1.5", "0x10", "+1", " 1", "1 ",
                           "18446744073709551616", "-9223372036854775809", "--1"}) {
    EXPECT_EQ(ParseKeys(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace hps::cli
