// The format of a page file (docs/page_files.md): the rows of one incarnation in ascending key
// order, in pages of equal size.
//
//   header | page 0 | page 1 | ... | index | footer
//
//   page        checksum (8), keys (8 each), versions (8 each), rows; zeros up to the page's end.
//               Every page but the last holds rows_per_page rows. The three arrays begin at the
//               same offsets in every page, also in the last one.
//   index       blocks of kPageBlockBytes: checksum (8), then the first keys of 511 pages
//   header and  the same block twice: what is needed to read the file. One intact copy is enough
//   footer
//
// Integers are little-endian. A checksum covers the bytes behind it, and the incarnation and the
// number of its page, so that an intact page in a wrong place counts as damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "hps/types.h"

namespace hps {

// Unit of all offsets and sizes in a page file; what direct I/O needs on every common disk.
inline constexpr size_t kPageBlockBytes = 4096;
inline constexpr size_t kPageBytesMax = 8 * kPageBlockBytes;
inline constexpr size_t kPageChecksumBytes = 8;
inline constexpr size_t kPageKeysPerIndexBlock =
    (kPageBlockBytes - kPageChecksumBytes) / sizeof(Key);

// How rows of one width lie in a page.
struct PageShape {
  size_t row_bytes = 0;
  size_t page_bytes = 0;
  size_t rows_per_page = 0;

  // The smallest page of which keys, versions and rows fill three quarters. REQUIRES: a row has at
  // most 16 KiB, the limit of tables.
  static PageShape Of(size_t row_bytes);

  size_t keys_offset() const { return kPageChecksumBytes; }
  size_t versions_offset() const { return keys_offset() + rows_per_page * sizeof(Key); }
  size_t rows_offset() const { return versions_offset() + rows_per_page * sizeof(Version); }
};

// What header and footer say.
struct PageFileDescription {
  Incarnation incarnation = 0;
  PageShape shape;
  uint64_t row_count = 0;
  Key first_key = 0;  // of the file; 0 if it has no rows
  Key last_key = 0;

  uint64_t page_count() const {
    return (row_count + shape.rows_per_page - 1) / shape.rows_per_page;
  }
  uint64_t index_block_count() const {
    return (page_count() + kPageKeysPerIndexBlock - 1) / kPageKeysPerIndexBlock;
  }
  uint64_t page_offset(uint64_t page) const { return kPageBlockBytes + page * shape.page_bytes; }
  uint64_t index_offset() const { return page_offset(page_count()); }
  uint64_t footer_offset() const { return index_offset() + index_block_count() * kPageBlockBytes; }
  uint64_t file_bytes() const { return footer_offset() + kPageBlockBytes; }
  // Rows of one page.
  size_t rows_of_page(uint64_t page) const {
    const uint64_t left = row_count - page * shape.rows_per_page;
    return left < shape.rows_per_page ? static_cast<size_t>(left) : shape.rows_per_page;
  }
  // The number that the checksum of an index block covers, beyond those of pages.
  uint64_t index_block_number(uint64_t block) const { return page_count() + block; }
};

// A page file as the records of a store name it.
struct PageFileRecord {
  uint64_t row_count = 0;
  Key first_key = 0;
  Key last_key = 0;
};

// Of the bytes behind the checksum of a page or index block.
uint64_t PageChecksum(Incarnation incarnation, uint64_t number, std::span<const std::byte> block);
void SetPageChecksum(Incarnation incarnation, uint64_t number, std::span<std::byte> block);
bool PageIsIntact(Incarnation incarnation, uint64_t number, std::span<const std::byte> block);

// Fills `block` with the header. REQUIRES: it has kPageBlockBytes.
void EncodePageHeader(const PageFileDescription& description, std::span<std::byte> block);

// nullopt if `block` is no header, is damaged, or describes a file that can't be. REQUIRES: it has
// kPageBlockBytes.
std::optional<PageFileDescription> DecodePageHeader(std::span<const std::byte> block);

}  // namespace hps
