#include "l2_memory/table_layout.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "l2_memory/reader_pool.h"
#include "tier/fence.h"

namespace hps {
namespace {

// Default slots of a partition: the maximum that a slot number can name, less some reserve. Fewer
// slots would spread the keys less evenly over the partitions.
constexpr uint64_t kSlotsPerPartition = 60'000;
constexpr uint64_t kSlotsPerTableMin = 32;
// Keeps rows of whole cache lines aligned to pairs of lines in every partition.
constexpr uint64_t kSlotsMultiple = 2;
static_assert(kSlotsPerPartition + kSlotsMultiple <= kSlotsMax);
// Slots in excess of the rows, so that updates find a free slot while readers still see old ones.
constexpr uint64_t kSpareSlotsMin = 16;
// Percentage of index entries that have a row when the table is full. Absent entries come on top;
// even then nearly every key finds a place without displacing another one.
constexpr uint64_t kIndexFillPercent = 70;
constexpr uint64_t kAbsentPercentMax = 10;
// Slots per word of the sketch: a word has 32 counters, three of them for a key.
constexpr uint64_t kRowsPerFrequencyWord = 2;
// Heap memory per partition: the table's pointer to it and the allocator's overhead.
constexpr uint64_t kPartitionHeapBytes = sizeof(void*) + 2 * sizeof(size_t);
// Larger budgets count as this: it exceeds what a process can address, and keeps sizes far from 64
// bits.
constexpr uint64_t kBudgetMax = uint64_t{1} << 48;
// Block sizes are rounded up to this.
constexpr uint64_t kBlockPageBytes = 4096;

uint64_t DivideUp(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

TableLayout LayoutForSlots(size_t row_bytes, uint64_t slots, const MemoryTierOptions& options) {
  TableLayout layout;
  const uint64_t partitions =
      std::max(std::max<uint64_t>(1, options.partitions), DivideUp(slots, kSlotsPerPartition));
  const uint64_t slot_count =
      RoundUp(std::max(DivideUp(slots, partitions), kSpareSlotsMin * 2), kSlotsMultiple);
  PartitionShape& shape = layout.shape;
  shape.row_bytes = row_bytes;
  shape.stride_bytes = RoundUp(row_bytes, 4);
  shape.eviction = options.eviction;
  shape.slot_count = static_cast<uint32_t>(slot_count);
  const uint64_t entries = DivideUp(slot_count * 100, kIndexFillPercent);
  shape.line_count = static_cast<uint32_t>(DivideUp(entries, IndexLine::kEntries));
  shape.frequency_word_count = static_cast<uint32_t>(DivideUp(slot_count, kRowsPerFrequencyWord));
  const auto filled = [&](double share) {
    return static_cast<uint32_t>(static_cast<double>(slot_count) * share);
  };
  // At least one: the smallest margin of the smallest table is less than a slot.
  shape.rows_max = std::clamp(filled(options.evict_from), uint32_t{1},
                              static_cast<uint32_t>(slot_count - kSpareSlotsMin));
  // Always below the margin; otherwise eviction would never happen.
  shape.rows_target = std::min(filled(options.evict_to), shape.rows_max - 1);

  // An absent entry occupies an index entry, so its share of the budget is counted in index
  // entries.
  const uint64_t entry_bytes = sizeof(IndexLine) / IndexLine::kEntries + 1;
  const uint64_t partition_bytes =
      slot_count * (shape.stride_bytes + sizeof(Version)) + shape.line_count * sizeof(IndexLine);
  shape.absent_max = static_cast<uint32_t>(
      std::min(partition_bytes * kAbsentPercentMax / 100 / entry_bytes, slot_count / 10));

  layout.partition_count = partitions;
  layout.rows_offset = RoundUp(partitions * shape.line_count * sizeof(IndexLine), kBlockPageBytes);
  layout.versions_offset =
      layout.rows_offset + RoundUp(partitions * slot_count * shape.stride_bytes, 64);
  layout.sequences_offset =
      layout.versions_offset + RoundUp(partitions * slot_count * sizeof(Version), 64);
  layout.rings_offset =
      layout.sequences_offset + RoundUp(partitions * slot_count * sizeof(uint32_t), 64);
  layout.frequencies_offset =
      layout.rings_offset + RoundUp(partitions * slot_count * sizeof(SlotNumber), 64);
  layout.block_bytes = RoundUp(
      layout.frequencies_offset + partitions * shape.frequency_word_count * sizeof(FrequencyWord),
      kBlockPageBytes);

  const uint64_t watermarks = std::max<uint64_t>(Fence::kWatermarksMin, layout.rows_max() / 64);
  layout.heap_bytes = kTableObjectBytes +
                      partitions * (sizeof(Partition) + sizeof(PartitionView) +
                                    sizeof(std::atomic<uint8_t>) + kPartitionHeapBytes) +
                      watermarks * sizeof(ApplyEpoch) + kFetchesPerTableMax * 64 +
                      ReaderPool::BytesFor(kFetchesPerTableMax);
  return layout;
}

}  // namespace

TableLayout LayoutForRows(size_t row_bytes, uint64_t rows, const MemoryTierOptions& options) {
  uint64_t slots = std::max(kSlotsPerTableMin, rows);
  for (;;) {
    const TableLayout layout = LayoutForSlots(row_bytes, slots, options);
    // Keys spread unevenly over several partitions; up to five standard deviations nothing is
    // evicted.
    const double mean = static_cast<double>(rows) / static_cast<double>(layout.partition_count);
    const double fullest = layout.partition_count == 1 ? mean : mean + 5 * std::sqrt(mean);
    if (fullest <= layout.shape.rows_max) return layout;
    slots += std::max<uint64_t>(1, slots / 512);
  }
}

absl::StatusOr<TableLayout> LayoutForBytes(size_t row_bytes, uint64_t bytes_max,
                                           const MemoryTierOptions& options) {
  const TableLayout smallest = LayoutForSlots(row_bytes, kSlotsPerTableMin, options);
  if (smallest.total_bytes() > bytes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("level 2: a table of rows of ", row_bytes, " bytes needs at least ",
                     smallest.total_bytes(), " bytes, its budget is ", bytes_max));
  }
  uint64_t fits = kSlotsPerTableMin;
  uint64_t too_many = std::max(fits, std::min(bytes_max, kBudgetMax) / row_bytes) + 1;
  while (too_many - fits > 1) {
    const uint64_t middle = fits + (too_many - fits) / 2;
    const bool middle_fits = LayoutForSlots(row_bytes, middle, options).total_bytes() <= bytes_max;
    (middle_fits ? fits : too_many) = middle;
  }
  return LayoutForSlots(row_bytes, fits, options);
}

}  // namespace hps
