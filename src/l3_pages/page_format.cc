#include "l3_pages/page_format.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/macros.h"

namespace hps {
namespace {

constexpr uint64_t kMagic = 0x3145474150535048;  // "HPSPAGE1"
constexpr uint32_t kVersion = 1;
constexpr size_t kEntryBytes = sizeof(Key) + sizeof(Version);  // of a row, besides itself

// Offsets in the header.
constexpr size_t kMagicAt = 0;
constexpr size_t kVersionAt = 8;
constexpr size_t kRowBytesAt = 12;
constexpr size_t kPageBytesAt = 16;
constexpr size_t kRowsPerPageAt = 20;
constexpr size_t kIncarnationAt = 24;
constexpr size_t kRowCountAt = 32;
constexpr size_t kFirstKeyAt = 40;
constexpr size_t kLastKeyAt = 48;
constexpr size_t kHeaderChecksumAt = kPageBlockBytes - 8;

size_t RowsPerPage(size_t row_bytes, size_t page_bytes) {
  return (page_bytes - kPageChecksumBytes) / (kEntryBytes + row_bytes);
}

// More than any disk has; sums of offsets below it can't wrap.
constexpr uint64_t kFileBytesMax = uint64_t{1} << 60;

bool IsPossible(const PageFileDescription& description) {
  const PageShape& shape = description.shape;
  if (shape.row_bytes == 0 || shape.page_bytes == 0 || shape.page_bytes > kPageBytesMax ||
      shape.page_bytes % kPageBlockBytes != 0 || shape.row_bytes > shape.page_bytes ||
      shape.rows_per_page == 0 ||
      shape.rows_per_page > RowsPerPage(shape.row_bytes, shape.page_bytes)) {
    return false;
  }
  if (description.row_count > kFileBytesMax / shape.page_bytes) return false;
  return description.row_count == 0 || description.first_key <= description.last_key;
}

}  // namespace

PageShape PageShape::Of(size_t row_bytes) {
  for (size_t page_bytes = kPageBlockBytes; page_bytes <= kPageBytesMax;
       page_bytes += kPageBlockBytes) {
    const size_t rows = RowsPerPage(row_bytes, page_bytes);
    if (rows * (kEntryBytes + row_bytes) * 4 >= page_bytes * 3)
      return {row_bytes, page_bytes, rows};
  }
  HPS_CHECK(false);  // page_format_test.cc tries every width
  return {};
}

uint64_t PageChecksum(Incarnation incarnation, uint64_t number, std::span<const std::byte> block) {
  const std::span<const std::byte> covered = block.subspan(kPageChecksumBytes);
  return XXH3_64bits(covered.data(), covered.size()) ^
         HashKey(static_cast<Key>(number), incarnation);
}

void SetPageChecksum(Incarnation incarnation, uint64_t number, std::span<std::byte> block) {
  StoreLittleEndian<uint64_t>(block.data(), PageChecksum(incarnation, number, block));
}

bool PageIsIntact(Incarnation incarnation, uint64_t number, std::span<const std::byte> block) {
  return LoadLittleEndian<uint64_t>(block.data()) == PageChecksum(incarnation, number, block);
}

void EncodePageHeader(const PageFileDescription& description, std::span<std::byte> block) {
  HPS_CHECK(block.size() == kPageBlockBytes);
  std::fill(block.begin(), block.end(), std::byte{0});
  std::byte* const to = block.data();
  StoreLittleEndian<uint64_t>(to + kMagicAt, kMagic);
  StoreLittleEndian<uint32_t>(to + kVersionAt, kVersion);
  StoreLittleEndian<uint32_t>(to + kRowBytesAt, static_cast<uint32_t>(description.shape.row_bytes));
  StoreLittleEndian<uint32_t>(to + kPageBytesAt,
                              static_cast<uint32_t>(description.shape.page_bytes));
  StoreLittleEndian<uint32_t>(to + kRowsPerPageAt,
                              static_cast<uint32_t>(description.shape.rows_per_page));
  StoreLittleEndian<uint64_t>(to + kIncarnationAt, description.incarnation);
  StoreLittleEndian<uint64_t>(to + kRowCountAt, description.row_count);
  StoreLittleEndian<Key>(to + kFirstKeyAt, description.first_key);
  StoreLittleEndian<Key>(to + kLastKeyAt, description.last_key);
  StoreLittleEndian<uint64_t>(to + kHeaderChecksumAt, XXH3_64bits(to, kHeaderChecksumAt));
}

std::optional<PageFileDescription> DecodePageHeader(std::span<const std::byte> block) {
  HPS_CHECK(block.size() == kPageBlockBytes);
  const std::byte* const from = block.data();
  if (LoadLittleEndian<uint64_t>(from + kMagicAt) != kMagic ||
      LoadLittleEndian<uint32_t>(from + kVersionAt) != kVersion ||
      LoadLittleEndian<uint64_t>(from + kHeaderChecksumAt) !=
          XXH3_64bits(from, kHeaderChecksumAt)) {
    return std::nullopt;
  }
  PageFileDescription description;
  description.shape.row_bytes = LoadLittleEndian<uint32_t>(from + kRowBytesAt);
  description.shape.page_bytes = LoadLittleEndian<uint32_t>(from + kPageBytesAt);
  description.shape.rows_per_page = LoadLittleEndian<uint32_t>(from + kRowsPerPageAt);
  description.incarnation = LoadLittleEndian<uint64_t>(from + kIncarnationAt);
  description.row_count = LoadLittleEndian<uint64_t>(from + kRowCountAt);
  description.first_key = LoadLittleEndian<Key>(from + kFirstKeyAt);
  description.last_key = LoadLittleEndian<Key>(from + kLastKeyAt);
  if (!IsPossible(description)) return std::nullopt;
  return description;
}

}  // namespace hps
