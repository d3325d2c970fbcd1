// What the tables of a device are made of, as host and kernels see it.
//
//   table   an index of its own: buckets of one 128-byte line. It leads from a key to an entry,
//           which has the number of the key's row, or the count of a key that waits for admission.
//   group   tables whose rows have one width, one type and one optimizer. Their rows are in one
//           arena, [vector | state] with a stride of whole lines, and have a record of 32 bytes
//           each.
//
// A key's buckets are HomeBucket, SecondBucket and those after the second. The key is in the first
// of them that had an empty slot when it was inserted. Erasing a key marks its slot as erased,
// never as empty, and only moving the index to new memory (MoveIndex) drops such slots. So a search
// for a key ends at the first bucket with an empty slot.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/hash.h"
#include "base/macros.h"
#include "hps/types.h"
#include "train/initializer.h"
#include "train/sparse_optimizer.h"

namespace hps {

inline constexpr uint32_t kBucketKeys = 8;

// These two keys mark slots of a bucket, and have their entries in a bucket behind the last.
inline constexpr Key kEmptySlot = -1;
inline constexpr Key kErasedSlot = -2;

struct alignas(128) KeyBucket {
  Key keys[kBucketKeys];
  uint64_t entries[kBucketKeys];
};
static_assert(sizeof(KeyBucket) == 128);

// An entry's lower half is one of
//   - a row's number
//   - kPendingBit, flags of a row that was erased, and a count; the upper half has the step that
//     counted last
//   - kErasedBit and such flags: the key has no row, but a reader of changes has had one of it, and
//     the host has not been told yet that it was erased (TakeErased)
//   - kRowComes: a row is being made for the key; the upper half has the flags
//   - kNoDeviceRow
inline constexpr uint32_t kDeviceRowsMax = uint32_t{1} << 30;
inline constexpr uint32_t kErasedBit = uint32_t{1} << 30;
inline constexpr uint32_t kPendingBit = uint32_t{1} << 31;
inline constexpr uint32_t kPendingMax = (uint32_t{1} << 28) - 1;
inline constexpr uint32_t kEntryPublished = uint32_t{1} << 28;
inline constexpr uint32_t kEntrySaved = uint32_t{1} << 29;
inline constexpr uint32_t kEntryFlags = kEntryPublished | kEntrySaved;
inline constexpr uint32_t kRowComes = 0xfffffffe;
inline constexpr uint32_t kNoDeviceRow = 0xffffffff;
inline constexpr uint64_t kNoEntry = ~uint64_t{0};  // as memset writes it

HPS_HOST_DEVICE constexpr uint32_t LowerHalf(uint64_t entry) {
  return static_cast<uint32_t>(entry);
}
HPS_HOST_DEVICE constexpr uint32_t UpperHalf(uint64_t entry) {
  return static_cast<uint32_t>(entry >> 32);
}
HPS_HOST_DEVICE constexpr uint64_t EntryOf(uint32_t upper, uint32_t lower) {
  return uint64_t{upper} << 32 | lower;
}
HPS_HOST_DEVICE constexpr bool HasRow(uint64_t entry) { return LowerHalf(entry) < kDeviceRowsMax; }
HPS_HOST_DEVICE constexpr bool IsPending(uint64_t entry) {
  return (LowerHalf(entry) & kPendingBit) != 0 && LowerHalf(entry) < kRowComes;
}
HPS_HOST_DEVICE constexpr uint32_t PendingCount(uint64_t entry) {
  return LowerHalf(entry) & kPendingMax;
}
// Those of an entry without a row.
HPS_HOST_DEVICE constexpr uint32_t FlagsOf(uint64_t entry) {
  if (LowerHalf(entry) >= kRowComes) return LowerHalf(entry) == kRowComes ? UpperHalf(entry) : 0;
  return HasRow(entry) ? 0 : LowerHalf(entry) & kEntryFlags;
}

struct RowRecord {
  Key key;
  // The last step that had the row, by its order number (upper half), and the complement of the
  // row's first position in it: the maximum is the newest step's first position.
  uint64_t order;
  uint32_t last_seen;  // the table's training step that last had the key
  uint32_t changed;    // the number of the last change, for deltas
  uint32_t updates;    // the row's own, with kRowLive and the flags
  float accumulator;   // row-wise AdaGrad
};
static_assert(sizeof(RowRecord) == 32);

// The flags are the entry's: an earlier delta had the row.
inline constexpr uint32_t kRowLive = uint32_t{1} << 31;
inline constexpr uint32_t kUpdatesMax = kEntryPublished - 1;  // more are not counted

// Counters that kernels change.
struct TrainTableCounters {
  uint32_t slots;  // of the index that are not empty
  uint32_t rows;
  uint32_t pending;  // keys that wait for admission
  uint32_t updates;  // of the table: training steps that had gradients
  uint32_t noted;    // entries with flags of a row that was erased
  uint32_t unused;
  unsigned long long erased;  // rows so far
};
struct TrainGroupCounters {
  uint32_t taken;  // rows below it have been taken at some time
  int32_t free;    // rows in the list of free ones
};

struct TrainTableView {
  KeyBucket* buckets;
  uint64_t bucket_count;
  uint32_t group;
  uint32_t admit_after;
  uint32_t expire_after;
  Initializer initializer;
};

struct TrainGroupView {
  std::byte* rows;
  RowRecord* records;
  uint32_t* free_rows;
  uint64_t stride_bytes;
  uint32_t dim;
  Dtype dtype;           // of the vector's elements
  uint32_t state_begin;  // bytes from a row's first to its state
  uint32_t state_count;  // float32 values
  SparseOptimizer optimizer;
  const float2* corrections;  // Adam's, [kKnownCorrections], by t; more are computed
};
inline constexpr uint32_t kKnownCorrections = 4096;

// Everything that kernels need to know of a set; the arrays are in device memory.
struct TrainSetView {
  const TrainTableView* tables;
  const TrainGroupView* groups;
  TrainTableCounters* table_counters;
  TrainGroupCounters* group_counters;
  uint32_t* problems;  // [problems], memory of the host: 1 for each that a step had
};

// What kernels outside of steps work on.
struct TableMemory {
  TrainTableView table;
  TrainGroupView group;
  TrainTableCounters* counters;
  TrainGroupCounters* group_counters;
  uint32_t* problems;
};

// What steps find wrong.
enum DeviceProblem : uint32_t { kBadOffsets, kIndexFull, kDeviceProblems };

HPS_HOST_DEVICE constexpr uint64_t HomeBucket(uint64_t hash, uint64_t count) {
  return HashToRange(hash, count);
}
HPS_HOST_DEVICE constexpr uint64_t SecondBucket(uint64_t hash, uint64_t count) {
  return HashToRange(hash << 32 | hash >> 32, count);
}
HPS_HOST_DEVICE constexpr uint64_t BucketAfter(uint64_t bucket, uint64_t count) {
  return bucket + 1 == count ? 0 : bucket + 1;
}

// Whether a row is too old to be used. `step`: the table's training steps.
HPS_HOST_DEVICE inline bool IsExpired(const TrainTableView& table, const RowRecord& row,
                                      uint32_t step) {
  return table.expire_after != 0 && step > row.last_seen &&
         step - row.last_seen > table.expire_after;
}

// A row begins with the elements of its vector.
HPS_HOST_DEVICE inline std::byte* RowAt(const TrainGroupView& group, uint32_t row) {
  return group.rows + row * group.stride_bytes;
}
HPS_HOST_DEVICE inline float* StateOf(const TrainGroupView& group, std::byte* row) {
  return static_cast<float*>(static_cast<void*>(row + group.state_begin));
}

}  // namespace hps
