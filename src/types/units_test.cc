#include "types/units.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

namespace hps {
namespace {

using std::chrono::nanoseconds;

TEST(UnitsTest, ReadsSizes) {
  EXPECT_EQ(*ParseByteSize("0B"), 0u);
  EXPECT_EQ(*ParseByteSize("7B"), 7u);
  EXPECT_EQ(*ParseByteSize("1KiB"), 1024u);
  EXPECT_EQ(*ParseByteSize("512MiB"), uint64_t{512} << 20);
  EXPECT_EQ(*ParseByteSize("4GiB"), uint64_t{4} << 30);
  EXPECT_EQ(*ParseByteSize("2TiB"), uint64_t{2} << 40);
}

TEST(UnitsTest, RefusesWhatIsNoSize) {
  for (const char* text : {"", "MiB", "512", "512 MiB", "-1B", "+1B", "1.5GiB", "1MB", "1mib",
                           "0x10B", "16777216TiB", "18446744073709551616B", "1KiBx"}) {
    EXPECT_EQ(ParseByteSize(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(UnitsTest, ReadsDurations) {
  EXPECT_EQ(*ParseDuration("1ns"), nanoseconds(1));
  EXPECT_EQ(*ParseDuration("20us"), std::chrono::microseconds(20));
  EXPECT_EQ(*ParseDuration("500ms"), std::chrono::milliseconds(500));
  EXPECT_EQ(*ParseDuration("0s"), nanoseconds(0));
  EXPECT_EQ(*ParseDuration("3min"), std::chrono::minutes(3));
  EXPECT_EQ(*ParseDuration("1h"), std::chrono::hours(1));
}

TEST(UnitsTest, RefusesWhatIsNoDuration) {
  for (const char* text :
       {"", "s", "1", "1 s", "-1s", "1.5s", "1sec", "10000000h", "9223372036854775808ns"}) {
    EXPECT_EQ(ParseDuration(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(UnitsTest, FormatsWithTheLargestWholeUnit) {
  EXPECT_EQ(FormatByteSize(0), "0B");
  EXPECT_EQ(FormatByteSize(1536), "1536B");
  EXPECT_EQ(FormatByteSize(2048), "2KiB");
  EXPECT_EQ(FormatByteSize(uint64_t{1} << 30), "1GiB");
  EXPECT_EQ(FormatDuration(nanoseconds(0)), "0s");
  EXPECT_EQ(FormatDuration(std::chrono::milliseconds(1500)), "1500ms");
  EXPECT_EQ(FormatDuration(std::chrono::seconds(60)), "1min");
}

TEST(UnitsTest, ParsesWhatItFormats) {
  for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1023}, uint64_t{1} << 20,
                         (uint64_t{1} << 40) + 1024, std::numeric_limits<uint64_t>::max()}) {
    EXPECT_EQ(*ParseByteSize(FormatByteSize(bytes)), bytes);
  }
  for (int64_t ns : {int64_t{0}, int64_t{1}, int64_t{999'999}, int64_t{60'000'000'000},
                     std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(*ParseDuration(FormatDuration(nanoseconds(ns))), nanoseconds(ns));
  }
}

}  // namespace
}  // namespace hps
