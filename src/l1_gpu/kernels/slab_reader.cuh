// How kernels read slabs, without a lock, while other kernels write them.
//
// The write sequence. Every writing block increments a word of the write sequence, in all copies,
// before its first change, and ends its entry after its last one. A reader that saw the same
// quiescent copy before it read the slabs and after it read the rows ran concurrently with no
// writer, so nothing it read changed. This costs one load of a line that is always in L2, and is by
// far the most frequent case. The first load is an acquire: everything that the multiprocessor's
// own cache holds behind it was read behind it too, so such a reader may take slabs and rows from
// that cache, where the hot ones are.
//
// The content of a slab (keys, valid slots) changes under the lock of its control word. A row that
// keeps its slot is overwritten under the lock of its key. Updates have a word of their own in the
// write sequence. If only updates run, slabs do not change: a key that is not found is not held,
// and a row is consistent if its lock was free and had the same value before and after the row was
// read. (Locks are selected by key, not by slot, so that a reader fetches the lock while it fetches
// the slab.)
//
// If other writers run, a reader checks slab by slab. It reads control word A, the keys, the row's
// lock, then the row; then, with fences between, it reads the slot's key, the control word and the
// row lock again (B). If both words are unchanged and were not locked, the slab did not change
// between A and B. The key was read between them, so it owned the row that was read between them,
// and no writer overwrote that row. (The keys of the first probe don't prove this: control word and
// keys are two sectors, which may be served in any order.)
//
// A miss is verified by a separate search: first slab A1, its keys; second slab A2, its keys; then
// B2 and B1. At any time between A2 and B2 both slabs were as read, so the key was in neither of
// them, even if it was moved before or after. A slab that was locked when it was read proves
// nothing. Whatever can't be proved is read again, so a held key is never reported as a miss.
//
// Versions of slabs have 23 bits and wrap. A write changes a slab's version at most once for each
// of its keys, a launch has at most kKeysPerWriteMax = 2^20 keys, and one launch writes at a time.
// The write sequence adds a block's keys when the block ends (in 44 bits, which last for more than
// an hour at full speed). Between two loads of it, versions therefore advance by at most the keys
// counted between them plus those of the launch that runs at the second load. Up to 2^22 + 2^20 of
// them can't wrap; a reader that slept through more reads again. Versions of row locks have 31
// bits: to wrap, that many updates would have to follow each other on one lock while one tile is
// read.
#pragma once

#include <cstdint>

#include "gpu/device_memory.cuh"
#include "l1_gpu/kernels/kernels.h"
#include "l1_gpu/kernels/slab.h"

namespace hps {

inline constexpr uint32_t kControlLocked = 1;
inline constexpr uint32_t kControlOverflowed = 2;
inline constexpr uint32_t kControlValidShift = 2;
inline constexpr uint32_t kControlValidMask = (1u << kSlabSlots) - 1;
inline constexpr uint32_t kControlVersionStep = 1u << 9;

__device__ inline uint32_t ValidSlots(uint32_t control) {
  return control >> kControlValidShift & kControlValidMask;
}

// Layout of the words of WriteSequence.
inline constexpr uint32_t kSequenceKeysShift = 20;
inline constexpr unsigned long long kSequenceBlocksMask = (1ull << kSequenceKeysShift) - 1;

__device__ inline bool IsQuiet(unsigned long long sequence) {
  return (sequence & kSequenceBlocksMask) == 0;
}
__device__ inline bool VersionsMayHaveWrapped(unsigned long long before, unsigned long long after) {
  return (after >> kSequenceKeysShift) - (before >> kSequenceKeysShift) >= 4 * kKeysPerWriteMax;
}

using SequenceWords = WriteSequence::Words;

// The copy that this warp reads, always the same.
__device__ inline const SequenceWords* SequenceOfWarp(const WriteSequence* sequence) {
  const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / kWarpLanes + blockIdx.y;
  return sequence->copies + warp % WriteSequence::kCopies;
}

// x: the slabs word; y: the rows word.
__device__ inline ulonglong2 LoadSequence(const SequenceWords* words) {
  return LoadRelaxed(reinterpret_cast<const ulonglong2*>(words));
}
__device__ inline ulonglong2 AcquireSequence(const SequenceWords* words) {
  return LoadAcquire(reinterpret_cast<const ulonglong2*>(words));
}

// Which writers may run while slabs are read.
enum class Concurrency {
  // No writer, according to an acquired load of the write sequence. The load is repeated
  // afterwards, and the data counts only if it still shows no writer. Other queries may write
  // stamps even then.
  kQuiescent,
  kWriters,  // any writer, or unknown
};

inline constexpr uint32_t kRowLocked = 1;
inline constexpr uint32_t kRowVersionStep = 2;

__device__ inline uint32_t* RowLockOf(WriteSequence* sequence, uint64_t key) {
  static_assert(WriteSequence::kRowLocks == 1u << 20);
  return sequence->row_locks + (static_cast<uint32_t>(key ^ key >> 32) * 0x9e3779b1u >> 12);
}

struct SlabPair {
  uint32_t first;
  uint32_t second;
};

// A multiply and xor-shift mix; its halves make two independent choices.
__device__ inline SlabPair SlabsOf(uint64_t key, uint32_t slab_count) {
  constexpr uint64_t kMultiplier = 0xd6e8feb86659fd93;
  uint64_t hash = (key ^ key >> 32) * kMultiplier;
  hash = (hash ^ hash >> 32) * kMultiplier;
  hash ^= hash >> 32;
  SlabPair slabs;
  slabs.first = __umulhi(static_cast<uint32_t>(hash), slab_count);
  slabs.second = __umulhi(static_cast<uint32_t>(hash >> 32), slab_count);
  if (slabs.second == slabs.first)
    slabs.second = slabs.first + 1 == slab_count ? 0 : slabs.first + 1;
  return slabs;
}

// The index of slot j's key in the slab: even words are the upper halves of 16-byte pieces.
__device__ inline uint32_t KeyIndexOfSlot(uint32_t slot) {
  return slot < 4 ? 2 * slot : 2 * slot - 7;
}
__device__ inline uint64_t* KeyOfSlot(Slab* slab, uint32_t slot) {
  return reinterpret_cast<uint64_t*>(slab->keys) + KeyIndexOfSlot(slot);
}

// What the owner lane of a key learns about a slab.
struct Probe {
  uint32_t control;
  uint32_t stamps;
  uint32_t matches;  // bit j: slot j is valid and holds the key
};

// Reads the slabs of up to kKeys keys; lane i's `slab` is that of lane i's key. Four lanes read a
// slab, 16 bytes each, so that each slab is one request of 64 bytes and one instruction reads eight
// slabs. Lanes outside `wanted` keep their `probe`. For all lanes of a warp.
template <int kKeys, Concurrency kConcurrency = Concurrency::kWriters>
__device__ inline void ProbeSlabs(Slab* slabs, uint32_t slab, uint64_t key, uint32_t wanted,
                                  Probe& probe) {
  constexpr int kSteps = (kKeys + 7) / 8;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t part = lane % 4;
  uint4 words[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint32_t owner = step * 8 + lane / 4;
    const uint32_t owners_slab = __shfl_sync(kAllLanes, slab, owner);
    words[step] = make_uint4(0, 0, 0, 0);
    if ((wanted >> owner & 1) == 0) continue;
    const uint4* const from = reinterpret_cast<const uint4*>(slabs + owners_slab) + part;
    words[step] =
        kConcurrency == Concurrency::kQuiescent ? LoadRelaxedCta(from) : LoadRelaxed(from);
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const uint4& word = words[step];
    const uint64_t owners_key = __shfl_sync(kAllLanes, key, step * 8 + lane / 4);
    const uint64_t low = static_cast<uint64_t>(word.y) << 32 | word.x;
    const uint64_t high = static_cast<uint64_t>(word.w) << 32 | word.z;
    const uint32_t low_matches = __ballot_sync(kAllLanes, part != 0 && low == owners_key);
    const uint32_t high_matches = __ballot_sync(kAllLanes, high == owners_key);
    const uint32_t control = __shfl_sync(kAllLanes, word.x, lane % 8 * 4);
    const uint32_t stamps = __shfl_sync(kAllLanes, word.y, lane % 8 * 4);
    if (lane / 8 == step && (wanted >> lane & 1)) {
      const uint32_t shift = lane % 8 * 4;
      const uint32_t matches = (high_matches >> shift & 15) | (low_matches >> shift & 15) >> 1 << 4;
      probe = {control, stamps, matches & ValidSlots(control)};
    }
  }
}

__device__ inline uint32_t StampOfSlot(uint32_t stamps, uint32_t slot) {
  return stamps >> 4 * slot & 15;
}
__device__ inline uint32_t WithStamp(uint32_t stamps, uint32_t slot, uint32_t stamp) {
  return (stamps & ~(15u << 4 * slot)) | stamp << 4 * slot;
}

// Reads one slab for one key with a whole warp, in the required order: the control word, then the
// keys. False: the slab was locked.
__device__ inline bool SearchSlab(Slab* slab, uint64_t key, uint32_t* control, uint32_t* matches) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  *control = __shfl_sync(kAllLanes, LoadRelaxed(&slab->control), 0);
  FenceGpu();
  __syncwarp();
  const bool match = lane < kSlabSlots && LoadRelaxed(KeyOfSlot(slab, lane)) == key;
  *matches = __ballot_sync(kAllLanes, match) & ValidSlots(*control);
  return (*control & kControlLocked) == 0;
}

}  // namespace hps
