// Finding and claiming entries of a table's index.
#pragma once

#include <cstdint>

#include "gpu/device_memory.cuh"
#include "train_gpu/kernels/kernels.h"
#include "train_gpu/kernels/layout.h"

namespace hps {

inline constexpr uint32_t kQuadLanes = 4;

__device__ inline uint64_t IndexHash(Key key) { return HashKey(key, kTrainIndexHashSeed); }

__device__ inline bool IsMark(Key key) { return key == kEmptySlot || key == kErasedSlot; }
__device__ inline uint64_t* EntryOfMark(const TrainTableView& table, Key key) {
  return &table.buckets[table.bucket_count].entries[key == kEmptySlot ? 0 : 1];
}

// The entry of a key, null if the index lacks it. All lanes of a warp call it, those of a quad with
// one key; each reads a quarter of a bucket's keys. `is_wanted`: whether the quad has a key.
__device__ inline uint64_t* FindEntry(const TrainTableView& table, Key key, bool is_wanted) {
  const uint32_t first_lane = threadIdx.x % kWarpLanes / kQuadLanes * kQuadLanes;
  const uint32_t lane = threadIdx.x % kQuadLanes;
  const uint64_t hash = IndexHash(key);
  uint64_t at = HomeBucket(hash, table.bucket_count);
  uint64_t* found = nullptr;
  bool is_open = is_wanted;
  if (is_open && IsMark(key)) {
    found = EntryOfMark(table, key);
    is_open = false;
  }
  for (uint64_t probe = 0; __any_sync(kAllLanes, is_open); ++probe) {
    Key first = kErasedSlot;
    Key second = kErasedSlot;
    if (is_open) {
      const auto* const keys = reinterpret_cast<const ulonglong2*>(table.buckets[at].keys);
      const ulonglong2 pair = LoadRelaxed(keys + lane);
      first = static_cast<Key>(pair.x);
      second = static_cast<Key>(pair.y);
    }
    const auto of_quad = [first_lane](bool is_so) {
      return __ballot_sync(kAllLanes, is_so) >> first_lane & 0xf;
    };
    const uint32_t firsts = of_quad(is_open && first == key);
    const uint32_t seconds = of_quad(is_open && second == key);
    const uint32_t empties = of_quad(first == kEmptySlot || second == kEmptySlot);
    if (!is_open) continue;
    if ((firsts | seconds) != 0) {
      const int hit = __ffs(static_cast<int>(firsts != 0 ? firsts : seconds)) - 1;
      found = &table.buckets[at].entries[hit * 2 + (firsts != 0 ? 0 : 1)];
    }
    is_open = found == nullptr && empties == 0 && probe <= table.bucket_count;
    at = probe == 0 ? SecondBucket(hash, table.bucket_count) : BucketAfter(at, table.bucket_count);
  }
  return found;
}

// The same by one thread, for kernels whose threads have keys of their own.
__device__ inline uint64_t* FindEntryAlone(const TrainTableView& table, Key key) {
  if (IsMark(key)) return EntryOfMark(table, key);
  const uint64_t hash = IndexHash(key);
  uint64_t at = HomeBucket(hash, table.bucket_count);
  for (uint64_t probe = 0; probe < table.bucket_count + 2; ++probe) {
    KeyBucket& bucket = table.buckets[at];
    bool has_room = false;
    for (uint32_t slot = 0; slot < kBucketKeys; ++slot) {
      const Key found =
          static_cast<Key>(LoadRelaxed(reinterpret_cast<const uint64_t*>(&bucket.keys[slot])));
      if (found == key) return &bucket.entries[slot];
      has_room = has_room || found == kEmptySlot;
    }
    if (has_room) return nullptr;
    at = probe == 0 ? SecondBucket(hash, table.bucket_count) : BucketAfter(at, table.bucket_count);
  }
  return nullptr;
}

// The entry of a key, which gets one if it has none; then *is_new. Threads may claim any keys at
// the same time. Null: the index is full.
__device__ inline uint64_t* ClaimEntry(const TrainTableView& table, Key key, bool* is_new) {
  *is_new = false;
  if (IsMark(key)) return EntryOfMark(table, key);
  const uint64_t hash = IndexHash(key);
  uint64_t at = HomeBucket(hash, table.bucket_count);
  for (uint64_t probe = 0; probe < table.bucket_count + 2; ++probe) {
    KeyBucket& bucket = table.buckets[at];
    for (uint32_t slot = 0; slot < kBucketKeys; ++slot) {
      auto* const word = reinterpret_cast<unsigned long long*>(&bucket.keys[slot]);
      auto found = static_cast<Key>(LoadRelaxed(reinterpret_cast<const uint64_t*>(word)));
      if (found == kEmptySlot) {
        found = static_cast<Key>(atomicCAS(word, static_cast<unsigned long long>(kEmptySlot),
                                           static_cast<unsigned long long>(key)));
        if (found == kEmptySlot) {
          *is_new = true;
          return &bucket.entries[slot];
        }
      }
      if (found == key) return &bucket.entries[slot];
    }
    at = probe == 0 ? SecondBucket(hash, table.bucket_count) : BucketAfter(at, table.bucket_count);
  }
  return nullptr;
}

// Adds `add` to a counter for all active threads that call it with the same counter, with one
// atomic; returns what the counter was before this thread's part.
__device__ inline uint32_t AddTogether(uint32_t* counter, uint32_t add) {
  const uint32_t active = __activemask();
  const uint32_t same = __match_any_sync(active, reinterpret_cast<unsigned long long>(counter));
  const uint32_t lane = threadIdx.x % kWarpLanes;
  uint32_t before = 0;  // of lower lanes
  uint32_t total = 0;
  for (uint32_t rest = same; rest != 0; rest &= rest - 1) {
    const int other = __ffs(static_cast<int>(rest)) - 1;
    const uint32_t value = __shfl_sync(same, add, other);
    if (static_cast<uint32_t>(other) < lane) before += value;
    total += value;
  }
  const int leader = __ffs(static_cast<int>(same)) - 1;
  uint32_t old = 0;
  if (static_cast<int>(lane) == leader && total != 0) old = atomicAdd(counter, total);
  return __shfl_sync(same, old, leader) + before;
}

// Frees the row of an entry that was just taken from its key; returns its flags.
__device__ inline uint32_t FreeRow(const TrainGroupView& group, TrainTableCounters& counters,
                                   TrainGroupCounters& group_counters, uint32_t row) {
  RowRecord& record = group.records[row];
  const uint32_t flags = record.updates & kEntryFlags;
  record.updates = 0;
  atomicSub(&counters.rows, 1u);
  atomicAdd(&counters.erased, 1ull);
  group.free_rows[AddTogether(reinterpret_cast<uint32_t*>(&group_counters.free), 1)] = row;
  if (flags != 0) AddTogether(&counters.noted, 1);
  return flags;
}

// Makes the slot of an entry that has nothing left one of an erased key.
__device__ inline void EraseSlot(uint64_t* entry, Key key) {
  if (IsMark(key)) return;
  constexpr uintptr_t kLine = sizeof(KeyBucket);
  auto* const bucket =
      reinterpret_cast<KeyBucket*>(reinterpret_cast<uintptr_t>(entry) / kLine * kLine);
  bucket->keys[entry - bucket->entries] = kErasedSlot;
}

// Erases the row of an entry, if it still has the one that was found.
__device__ inline void EraseEntry(const TableMemory& memory, uint64_t* entry, Key key,
                                  uint64_t found) {
  auto* const word = reinterpret_cast<unsigned long long*>(entry);
  if (atomicCAS(word, static_cast<unsigned long long>(found),
                static_cast<unsigned long long>(kNoEntry)) != found)
    return;
  const uint32_t flags =
      FreeRow(memory.group, *memory.counters, *memory.group_counters, LowerHalf(found));
  if (flags != 0)
    *entry = EntryOf(0, kErasedBit | flags);
  else
    EraseSlot(entry, key);
}

}  // namespace hps
