// Which rows share pages with the lines of the index that name them.
//
// A look-up takes a line of the index and a row, at random places. Where memory is mapped in pages
// of 4 KiB, by a host below a virtual machine if not by the system, finding each of the two places
// costs a walk through page tables, which for narrow rows takes as long as the row itself. So rows
// of some widths lie in pages with the lines that name them: lines first, then rows, no gap. A row
// whose page is full lies in another one, which costs the walk and nothing else.
//
// The widths are those for which a page has no bytes to spare; they are powers of two, as most are
// in use. Rows of 512 bytes and more are left out: their own lines take longer than the walk.
#pragma once

#include <cstddef>
#include <cstdint>

#include "l2_memory/index_line.h"

namespace hps {

inline constexpr size_t kRowPageBytes = 4096;
inline constexpr size_t kRowPageLines = kRowPageBytes / sizeof(IndexLine);

// How a page is divided. Without lines: rows of this width are kept apart from the index.
struct RowPage {
  uint32_t lines = 0;
  uint32_t slots = 0;
  uint32_t slot_bits = 0;  // enough to number the slots of a page

  constexpr bool shared() const { return lines > 0; }
  constexpr size_t rows_offset() const { return lines * sizeof(IndexLine); }
};

constexpr RowPage RowPageFor(size_t row_bytes) {
  switch (row_bytes) {
    case 64:
      return {.lines = 14, .slots = 50, .slot_bits = 6};
    case 128:
      return {.lines = 8, .slots = 28, .slot_bits = 5};
    case 256:
      return {.lines = 4, .slots = 15, .slot_bits = 4};
    default:
      return {};
  }
}

constexpr bool FillsPage(size_t row_bytes) {
  const RowPage page = RowPageFor(row_bytes);
  return page.rows_offset() + page.slots * row_bytes == kRowPageBytes &&
         page.slots <= uint32_t{1} << page.slot_bits;
}
static_assert(FillsPage(64) && FillsPage(128) && FillsPage(256));

}  // namespace hps
