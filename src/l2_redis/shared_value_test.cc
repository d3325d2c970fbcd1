#include "l2_redis/shared_value.h"

#include <gtest/gtest.h>

#include <string>

#include "base/bytes.h"

namespace hps {
namespace {

constexpr SharedIdentity kSharedIdentity = {.table = 77, .key = -5};
constexpr uint64_t kNonce = 123456789;

std::string ValueOf(const SharedRow& row, uint64_t nonce = kNonce) {
  std::string value;
  AppendNonce(nonce, value);
  AppendSharedRow(kSharedIdentity, row, value);
  return value;
}

TEST(SharedValueTest, ARowComesBack) {
  const std::string bytes = "sixteen bytes ok";
  for (const bool is_late : {false, true}) {
    const std::string value =
        ValueOf({.version = 7, .complete_to = 9, .row = AsBytes(std::string_view(bytes))},
                is_late ? kNonce | kLateBit : kNonce);
    EXPECT_EQ(value.size(), kSharedHeaderBytes + bytes.size());
    SharedRow row;
    ASSERT_EQ(ParseSharedRow(kSharedIdentity, kNonce, value, bytes.size(), row),
              SharedRowState::kCurrent);
    EXPECT_EQ(row.is_late, is_late);
    EXPECT_EQ(row.version, 7u);
    EXPECT_EQ(row.complete_to, 9u);
    EXPECT_EQ(AsText(row.row), bytes);
    EXPECT_EQ(ParseSharedRow(kSharedIdentity, kNonce + 1, value, bytes.size(), row),
              SharedRowState::kGone);
    EXPECT_EQ(ParseSharedRow({.table = 77, .key = -4}, kNonce, value, bytes.size(), row),
              SharedRowState::kDamaged);
    EXPECT_EQ(ParseSharedRow({.table = 78, .key = -5}, kNonce, value, bytes.size(), row),
              SharedRowState::kDamaged);
  }
  SharedRow row;
  ASSERT_EQ(
      ParseSharedRow(kSharedIdentity, kNonce, ValueOf({.version = 7, .complete_to = 8}), 16, row),
      SharedRowState::kCurrent);
  EXPECT_TRUE(row.row.empty());
}

// The nonce is not covered: another one is a row that is gone, or a late one, which is checked more
// strictly.
TEST(SharedValueTest, EveryFlippedBitIsFound) {
  const std::string bytes = "0123456789abcdef";
  const std::string whole =
      ValueOf({.version = 7, .complete_to = 9, .row = AsBytes(std::string_view(bytes))});
  for (size_t bit = kSharedNonceBytes * 8; bit < whole.size() * 8; ++bit) {
    std::string value = whole;
    value[bit / 8] = static_cast<char>(value[bit / 8] ^ (1 << (bit % 8)));
    SharedRow row;
    EXPECT_EQ(ParseSharedRow(kSharedIdentity, kNonce, value, bytes.size(), row),
              SharedRowState::kDamaged);
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    SharedRow row;
    EXPECT_EQ(ParseSharedRow(kSharedIdentity, kNonce, whole.substr(0, size), bytes.size(), row),
              SharedRowState::kDamaged);
  }
}

std::string MarkOf(const std::vector<Version>& positions, uint64_t nonce = kNonce) {
  std::string text;
  AppendNonce(nonce, text);
  AppendVersions(positions, text);
  const uint32_t checksum = SharedMarkChecksum(text);
  for (const int shift : {24, 16, 8, 0}) text += static_cast<char>(checksum >> shift);
  return text;
}

TEST(SharedValueTest, AMarkComesBack) {
  EXPECT_EQ(ParseSharedMark(MarkOf({}))->generation(), 0);
  const std::vector<Version> positions = {(Version{3} << 48) | 17, (Version{3} << 48) | 1};
  const std::string text = MarkOf(positions);
  const auto mark = ParseSharedMark(text);
  ASSERT_TRUE(mark.has_value());
  EXPECT_EQ(mark->nonce, kNonce);
  EXPECT_EQ(mark->positions, positions);
  EXPECT_EQ(mark->generation(), 3);
  EXPECT_FALSE(ParseSharedMark(text.substr(1)).has_value());
  EXPECT_FALSE(ParseSharedMark("").has_value());
  EXPECT_FALSE(ParseSharedMark(MarkOf(positions, kNonce | kLateBit)).has_value());
}

// Else the rows of a damaged mark would count as newer than they are.
TEST(SharedValueTest, ADamagedMarkIsNone) {
  const std::string whole = MarkOf({(Version{3} << 48) | 17, (Version{3} << 48) | 1});
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string text = whole;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(ParseSharedMark(text).has_value()) << bit;
  }
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(ParseSharedMark(whole.substr(0, size)).has_value()) << size;
}

}  // namespace
}  // namespace hps
