// The device's data model of one table: slots in slabs of seven, two slabs per key, rows in a
// separate plain array. testing/host_device_cache/slab_table.h defines its meaning; this is the
// same model, laid out for the memory system: one 64-byte line says where a key is.
//
// A slab's header is two 32-bit words.
//   control: bit 0 the writers' lock; bit 1 overflowed (a key whose first slab this is lives in its
//     second one); bits 2 to 8 which slots hold a key; bits 9 to 31 a version that every change of
//     the slab advances.
//   stamps: four bits per slot, slot j at bits 4j: the stamp epoch of its last access.
// Slot j's key is the 8-byte word SlabWordOfSlot(j) of the slab. This is the order in which four
// lanes that read 16 bytes each find matches, so that nothing has to be reordered.
//
// slab_reader.cuh and slab_writer.cuh define how readers and writers share a slab.
#pragma once

#include <cstddef>
#include <cstdint>

#include "hps/types.h"
#include "tier/admission.h"

namespace hps {

inline constexpr uint32_t kSlabSlots = 7;
inline constexpr uint32_t kSlabsMin = 2;  // one slabset
// Slots have 32-bit numbers; the largest one means none.
inline constexpr uint32_t kSlabsMax = (UINT32_MAX - 1) / kSlabSlots;

struct alignas(64) Slab {
  uint32_t control;
  uint32_t stamps;
  Key keys[kSlabSlots];
};
static_assert(sizeof(Slab) == 64);

// The sketch by which a table with full slabs chooses the rows that it takes in.
inline constexpr uint32_t kFrequencyWordsPerSlab = 4;
// Keys counted between the agings of two words: each word is aged once while about as many rows are
// missed as the table holds.
inline constexpr uint32_t kKeysPerAgedWord = (kSlabSlots + 1) / kFrequencyWordsPerSlab;
static_assert(uint64_t{kSlabsMax} * kFrequencyWordsPerSlab <= UINT32_MAX);

// Counts of the changes to a table, on the device; only writing kernels change them. The number of
// held keys is insertions - evictions - erased - cleared.
struct TableCounters {
  uint64_t insertions;
  uint64_t evictions;
  uint64_t updates;
  uint64_t erased;
  uint64_t cleared;
  uint64_t dropped;       // insertions without a place that must not evict
  uint64_t not_admitted;  // insertions of rows that are asked for rarely
  uint64_t sketched;      // keys counted in the sketch
};

// Shows readers whether writers are running: see slab_reader.cuh. One per device, initially zero.
struct WriteSequence {
  // The rows of all keys share these locks, which stay in the device's L2. With a lock in the row's
  // slab each update of a row would also write a line of the slab, which takes a fifth more time.
  static constexpr uint32_t kRowLocks = 1 << 20;

  // Low 20 bits: running writer blocks; above: keys written. There are two words because a reader
  // has less to check during updates only. They are read together.
  struct alignas(128) Words {
    unsigned long long slabs;  // of kernels that change slabs, and rows with them
    unsigned long long rows;   // of updates, which change rows that stay
  };

  // Writers change all copies, a reader reads any one of them: with a single line, all warps of a
  // call would wait for each other.
  static constexpr uint32_t kCopies = 16;
  Words copies[kCopies];
  uint32_t row_locks[kRowLocks];  // bit 0: locked; above: a version
};

// One table's memory, passed to kernels by value. Slabs and counters are initially zero, all
// pointers are device memory. Slot s of slab n has row n * kSlabSlots + s.
struct TableView {
  Slab* slabs = nullptr;  // null: nothing is cached, every key is a miss
  std::byte* rows = nullptr;
  TableCounters* counters = nullptr;
  WriteSequence* write_sequence = nullptr;
  uint32_t slab_count = 0;  // at least kSlabsMin
  uint32_t row_bytes = 0;
  uint32_t row_stride_bytes = 0;  // RowStrideBytes(row_bytes)
  uint32_t stamp_epoch = 0;       // StampEpoch() at the time of the launch
};

// Rows begin at multiples of 16 bytes, so that rows of every width are read in 16-byte pieces.
constexpr uint32_t RowStrideBytes(uint32_t row_bytes) { return (row_bytes + 15) / 16 * 16; }

// Memory of one slab: its line, its part of the sketch and its rows.
constexpr uint64_t SlabBytes(uint32_t row_bytes) {
  return sizeof(Slab) + kFrequencyWordsPerSlab * sizeof(FrequencyWord) +
         uint64_t{kSlabSlots} * RowStrideBytes(row_bytes);
}

// The current stamp epoch. It advances with insertions, not with calls: without insertions no query
// writes stamps. Sixteen values suffice, because a slot that was not accessed for that long has
// been evicted.
inline constexpr uint32_t kStampEpochs = 16;
constexpr uint32_t StampEpoch(uint64_t insertions, uint32_t slab_count) {
  const uint64_t step = uint64_t{slab_count} * kSlabSlots / 8;
  return static_cast<uint32_t>(insertions / (step == 0 ? 1 : step) % kStampEpochs);
}

}  // namespace hps
