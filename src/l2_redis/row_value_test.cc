#include "l2_redis/row_value.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "base/bytes.h"

namespace hps {
namespace {

constexpr RowIdentity kRowIdentity = {
    .incarnation = 77, .generation = 0xabcdef0123456789, .key = -5};

std::string ValueOf(const RowIdentity& identity, Version version, std::string_view row) {
  std::string value;
  AppendRowValue(identity, version, AsBytes(row), value);
  return value;
}

TEST(RowValueTest, ReadsWhatItWrites) {
  for (const Version version : {Version{0}, Version{1}, std::numeric_limits<Version>::max()}) {
    for (const std::string& row : {std::string(), std::string(32, 'r')}) {
      const std::string value = ValueOf(kRowIdentity, version, row);
      EXPECT_EQ(value.size(), kRowValueHeaderBytes + row.size());
      const RowValue parsed = ParseRowValue(kRowIdentity, value, 32);
      EXPECT_TRUE(parsed.valid);
      EXPECT_EQ(parsed.version, version);
      EXPECT_EQ(AsText(parsed.row), row);
    }
  }
}

TEST(RowValueTest, EveryChangedByteIsSeen) {
  const std::string value = ValueOf(kRowIdentity, 9, std::string(32, 'r'));
  for (size_t i = 0; i < value.size(); ++i) {
    std::string damaged = value;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(ParseRowValue(kRowIdentity, damaged, 32).valid) << i;
  }
  for (size_t size = 0; size < value.size(); ++size) {
    EXPECT_FALSE(ParseRowValue(kRowIdentity, std::string_view(value).substr(0, size), 32).valid)
        << size;
  }
  EXPECT_FALSE(ParseRowValue(kRowIdentity, value + "x", 32).valid);
}

TEST(RowValueTest, IsValidUnderItsNameOnly) {
  const std::string value = ValueOf(kRowIdentity, 9, std::string(32, 'r'));
  RowIdentity other = kRowIdentity;
  other.key = 5;
  EXPECT_FALSE(ParseRowValue(other, value, 32).valid);
  other = kRowIdentity;
  other.generation += uint64_t{1} << 24;  // the same three bytes in the name
  EXPECT_FALSE(ParseRowValue(other, value, 32).valid);
  other = kRowIdentity;
  ++other.incarnation;
  EXPECT_FALSE(ParseRowValue(other, value, 32).valid);
}

}  // namespace
}  // namespace hps
