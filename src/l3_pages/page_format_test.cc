#include "l3_pages/page_format.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <array>

#include "base/bytes.h"

namespace hps {
namespace {

constexpr size_t kRowBytesMax = 16384;

TEST(PageFormatTest, PagesAreWellFilledAtEveryWidth) {
  for (size_t row_bytes = 2; row_bytes <= kRowBytesMax; row_bytes += 2) {
    const PageShape shape = PageShape::Of(row_bytes);
    ASSERT_EQ(shape.row_bytes, row_bytes);
    ASSERT_EQ(shape.page_bytes % kPageBlockBytes, 0u);
    ASSERT_LE(shape.page_bytes, kPageBytesMax);
    const size_t end = shape.rows_offset() + shape.rows_per_page * row_bytes;
    ASSERT_LE(end, shape.page_bytes) << row_bytes;
    ASSERT_GE(end * 4, shape.page_bytes * 3) << row_bytes;
  }
  EXPECT_EQ(PageShape::Of(64).page_bytes, 4096u);
  EXPECT_EQ(PageShape::Of(64).rows_per_page, 51u);
  EXPECT_EQ(PageShape::Of(1346).page_bytes, 4096u);
  EXPECT_EQ(PageShape::Of(1348).page_bytes, 8192u);
  EXPECT_EQ(PageShape::Of(kRowBytesMax).page_bytes, 5 * 4096u);
}

TEST(PageFormatTest, TheIndexIsSmall) {
  for (const size_t row_bytes : {2u, 64u, 512u, 16384u}) {
    PageFileDescription description;
    description.shape = PageShape::Of(row_bytes);
    description.row_count = uint64_t{1} << 30;
    EXPECT_LE(static_cast<double>(description.page_count() * sizeof(Key)),
              0.0025 * static_cast<double>(description.file_bytes()));
  }
}

TEST(PageFormatTest, ChecksumsKnowPlaceAndIncarnation) {
  std::array<std::byte, kPageBlockBytes> block{};
  SetPageChecksum(1, 2, block);
  EXPECT_TRUE(PageIsIntact(1, 2, block));
  EXPECT_FALSE(PageIsIntact(1, 3, block));
  EXPECT_FALSE(PageIsIntact(2, 2, block));
  block[4095] = std::byte{1};
  EXPECT_FALSE(PageIsIntact(1, 2, block));
  // A block of zeros, which a power cut may leave, is no page.
  block.fill(std::byte{0});
  for (uint64_t number = 0; number < 100; ++number) EXPECT_FALSE(PageIsIntact(1, number, block));
}

TEST(PageFormatTest, RefusesHeadersThatCannotBe) {
  PageFileDescription description;
  description.shape = PageShape::Of(64);
  description.row_count = 100;
  description.last_key = 99;
  std::array<std::byte, kPageBlockBytes> block{};
  const auto decode = [&block] {
    StoreLittleEndian<uint64_t>(block.data() + 4088, XXH3_64bits(block.data(), 4088));
    return DecodePageHeader(block);
  };
  EncodePageHeader(description, block);
  ASSERT_TRUE(decode().has_value());
  EXPECT_EQ(decode()->row_count, 100u);
  const std::array<std::byte, kPageBlockBytes> good = block;
  constexpr struct {
    size_t offset;
    uint32_t value;
  } kChanges[] = {{0, 0},      {8, 2},  {12, 0},  {12, 5000},     {16, 0},       {16, 4095},
                  {16, 65536}, {20, 0}, {20, 52}, {36, 1u << 31}, {52, 1u << 31}};
  for (const auto& change : kChanges) {
    block = good;
    StoreLittleEndian<uint32_t>(block.data() + change.offset, change.value);
    EXPECT_FALSE(decode().has_value()) << change.offset << " = " << change.value;
  }
}

}  // namespace
}  // namespace hps
