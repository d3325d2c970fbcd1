#include "server/net/compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

#include "base/bytes.h"
#include "server/net/test_packed.h"

namespace hps::server {
namespace {

std::string Packed(Coding coding, const std::string& text, BufferPool& pool) {
  const std::array<std::span<const std::byte>, 2> pieces = {
      AsBytes(std::string_view(text).substr(0, text.size() / 3)),
      AsBytes(std::string_view(text).substr(text.size() / 3))};
  const absl::StatusOr<CodedBytes> packed = Deflate(coding, pieces, SIZE_MAX, pool);
  EXPECT_TRUE(packed.ok());
  return std::string(AsText(packed->bytes()));
}

absl::StatusOr<std::string> Unpacked(Coding coding, std::string_view packed, uint64_t bytes_max,
                                     BufferPool& pool, GzipMembers members = GzipMembers::kMany) {
  absl::StatusOr<CodedBytes> body = Inflate(coding, AsBytes(packed), bytes_max, members, pool);
  if (!body.ok()) return body.status();
  return std::string(AsText(body->bytes()));
}

TEST(CompressionTest, WhatIsPackedUnpacks) {
  BufferPool pool({.lent_bytes_max = 64 << 20});
  std::mt19937_64 random(5);
  for (const size_t size : {0, 1, 31, 4096, 65'536, 65'537, 1'000'000}) {
    std::string text(size, 'a');
    for (size_t i = 0; i < size; i += 3) text[i] = static_cast<char>(random());
    for (const Coding coding : {Coding::kGzip, Coding::kDeflate}) {
      const std::string packed = Packed(coding, text, pool);
      EXPECT_EQ(packed.substr(0, 1), coding == Coding::kGzip ? "\x1f" : "\x78");
      EXPECT_EQ(Unpacked(coding, packed, size, pool).value(), text);
      const std::string other = hps::server::Packed(text, coding == Coding::kGzip ? 31 : 15);
      EXPECT_EQ(Unpacked(coding, other, size, pool, GzipMembers::kOne).value(), text);
      if (size > 0) {
        EXPECT_EQ(Unpacked(coding, packed, size - 1, pool).status().code(),
                  absl::StatusCode::kOutOfRange);
      }
    }
  }
  EXPECT_EQ(pool.lent_bytes(), 0u);
}

TEST(CompressionTest, WhatPacksToMoreThanItMayTakesNoMoreRoom) {
  BufferPool pool({.lent_bytes_max = 64 << 10});
  std::mt19937_64 random(5);
  std::string text(64 << 10, ' ');
  for (char& c : text) c = static_cast<char>(random());
  const std::string_view all = text;
  for (const size_t cut : {size_t{0}, size_t{1}, text.size() / 2, text.size()}) {
    const std::array<std::span<const std::byte>, 2> pieces = {AsBytes(all.substr(0, cut)),
                                                              AsBytes(all.substr(cut))};
    EXPECT_EQ(Deflate(Coding::kGzip, pieces, text.size(), pool).status().code(),
              absl::StatusCode::kOutOfRange);
    EXPECT_EQ(pool.lent_bytes(), 0u);
  }
}

TEST(CompressionTest, ABombCostsNoMoreThanTheLimit) {
  BufferPool pool(
      {.lent_bytes_max = 4 << 20});  // the limit, and the half of it that is copied from
  const std::string bomb = [] {
    BufferPool wide({.lent_bytes_max = 256 << 20});
    return Packed(Coding::kGzip, std::string(64 << 20, '\0'), wide);
  }();
  EXPECT_LT(bomb.size(), size_t{1} << 20);
  EXPECT_EQ(Unpacked(Coding::kGzip, bomb, 1 << 20, pool).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Unpacked(Coding::kGzip, bomb, 64 << 20, pool).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.lent_bytes(), 0u);
}

// RFC 1952 2.2: a gzip file is a series of members.
TEST(CompressionTest, MembersAreOneBody) {
  BufferPool pool({.lent_bytes_max = 1 << 20});
  const std::string empty = Packed(Coding::kGzip, "", pool);
  const std::string packed = empty + Packed(Coding::kGzip, "first, ", pool) +
                             Packed(Coding::kGzip, "second", pool) + empty;
  EXPECT_EQ(Unpacked(Coding::kGzip, packed, 13, pool).value(), "first, second");
  EXPECT_EQ(Unpacked(Coding::kGzip, packed, 12, pool).status().code(),
            absl::StatusCode::kOutOfRange)
      << "the limit is for all members together";
  EXPECT_EQ(Unpacked(Coding::kGzip, empty + empty, 13, pool).value(), "");
  EXPECT_EQ(Unpacked(Coding::kGzip, empty + empty, 13, pool, GzipMembers::kOne).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const std::string& wrong :
       {packed + "x", packed + std::string(100, '\0'), packed.substr(0, packed.size() - 1),
        packed + packed.substr(0, 9)}) {
    EXPECT_EQ(Unpacked(Coding::kGzip, wrong, 1000, pool).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  const std::string zlib = Packed(Coding::kDeflate, "first", pool);
  EXPECT_EQ(Unpacked(Coding::kDeflate, zlib + zlib, 1000, pool).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pool.lent_bytes(), 0u);
}

TEST(CompressionTest, RefusesWhatIsCutMixedUpOrFollowed) {
  BufferPool pool({.lent_bytes_max = 1 << 20});
  const std::string packed = Packed(Coding::kGzip, "some text that is packed", pool);
  const auto code = [&](Coding coding, std::string_view text) {
    return Unpacked(coding, text, 1000, pool).status().code();
  };
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_EQ(code(Coding::kGzip, packed.substr(0, size)), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(code(Coding::kDeflate, packed), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Coding::kGzip, packed + "x"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Coding::kGzip, "plain"), absl::StatusCode::kInvalidArgument);
}

TEST(CompressionTest, TheHeadOfWhatIsLargeIsItsFirstBytes) {
  BufferPool pool({.lent_bytes_max = 8 << 20});
  const std::string plain = "begins" + std::string(1 << 20, 'x');
  const std::string packed = Packed(Coding::kGzip, plain, pool);
  const auto head = [&pool](Coding coding, std::string_view bytes, size_t bytes_max) {
    const auto inflated = InflateHead(coding, AsBytes(bytes), bytes_max, pool);
    if (!inflated.ok()) return std::string(inflated.status().message());
    return std::string(AsText(inflated->bytes()));
  };
  for (const size_t n : {1, 6, 4096}) EXPECT_EQ(head(Coding::kGzip, packed, n), plain.substr(0, n));
  EXPECT_EQ(head(Coding::kDeflate, Packed(Coding::kDeflate, "few", pool), 4096), "few");
  EXPECT_EQ(head(Coding::kGzip, packed.substr(0, 200), 6), "begins") << "cut off";
  EXPECT_THAT(head(Coding::kGzip, "garbage", 4096), testing::HasSubstr("do not unpack"));
  EXPECT_EQ(head(Coding::kGzip, "", 4096), "");
}

TEST(CompressionTest, SaysWhenThereIsNoMemory) {
  BufferPool pool({.lent_bytes_max = 1 << 20});
  const std::string packed = Packed(Coding::kGzip, "plain", pool);
  BufferPool none({});
  EXPECT_EQ(Unpacked(Coding::kGzip, packed, 4096, none).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace hps::server
