// Divides a table's budget into partitions, slots, index lines and all other memory. The division
// is fixed when the table is opened, so the budget can't be exceeded later. Pages that hold no row
// yet are not touched and cost nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "l2_memory/memory_tier.h"
#include "l2_memory/partition.h"

namespace hps {

// Room for the table object itself and the allocator's overhead for its arrays.
inline constexpr size_t kTableObjectBytes = 1536;

struct TableLayout {
  PartitionShape shape;
  size_t partition_count = 0;

  // Offsets of the partitions' arrays in the table's one block of pages.
  size_t rows_offset = 0;  // the index begins at 0
  size_t versions_offset = 0;
  size_t sequences_offset = 0;
  size_t rings_offset = 0;
  size_t frequencies_offset = 0;
  size_t block_bytes = 0;

  size_t heap_bytes = 0;  // outside the block: partitions, watermarks, epochs

  uint64_t total_bytes() const { return uint64_t{block_bytes} + heap_bytes; }
  uint64_t rows_max() const { return uint64_t{shape.rows_max} * partition_count; }
};

// The layout that holds `rows` rows before eviction begins.
TableLayout LayoutForRows(size_t row_bytes, uint64_t rows, const MemoryTierOptions& options);

// The largest layout of at most `bytes_max`. Errors: RESOURCE_EXHAUSTED if there is none (says how
// many bytes are needed).
absl::StatusOr<TableLayout> LayoutForBytes(size_t row_bytes, uint64_t bytes_max,
                                           const MemoryTierOptions& options);

}  // namespace hps
