// How kernels change slabs. The writing kernels of a device run one after the other; within a
// kernel, warps write concurrently.
//
// A slab is locked by setting bit 0 of its control word. It is unlocked by a store of the new word
// with a new version, behind a fence that orders rows, keys and stamps before it. Another fence
// after the lock orders them behind it: a reader that sees any of them sees the lock.
//
// An update changes no slab: it locks rows by their keys (WriteSequence::row_locks) in the same
// way, and uses the other word of the write sequence.
//
// No deadlock: no warp waits while it holds a lock. Locks are tried in ascending order of slabs; a
// warp that fails releases its locks and tries again in its next round. No livelock: at any time
// the holder of the highest locked slab either has all its locks or tries a higher slab, which no
// other warp holds. So some try always succeeds, and the keys of a launch are finite. (A third slab
// is only tried for a move, which is optional.)
#pragma once

#include <algorithm>
#include <cstdint>

#include "l1_gpu/kernels/row_copy.cuh"
#include "l1_gpu/kernels/slab_reader.cuh"

namespace hps {

// One write, as the kernels see it.
struct WriteLaunch {
  WriteView view;
  CopyKind kind;
  uint32_t tile_count;
  uint32_t dumped_slab_count;
};

__device__ inline bool TryLock(Slab* slab) {
  return (atomicOr(&slab->control, kControlLocked) & kControlLocked) == 0;
}
// Call after a fence of every lane that wrote to the slab, and a __syncwarp.
__device__ inline void Unlock(Slab* slab, uint32_t control) {
  StoreRelaxed(&slab->control, control & ~kControlLocked);
}

__device__ inline bool IsFull(uint32_t control) { return ValidSlots(control) == kControlValidMask; }
__device__ inline uint32_t WithSlot(uint32_t control, uint32_t slot) {
  return control | 1u << (kControlValidShift + slot);
}
__device__ inline uint32_t WithoutSlot(uint32_t control, uint32_t slot) {
  return control & ~(1u << (kControlValidShift + slot));
}
__device__ inline uint32_t FreeSlot(uint32_t control) {
  return __ffs(~ValidSlots(control) & kControlValidMask) - 1;
}

// One of the two words of the write sequence.
using SequenceWord = unsigned long long SequenceWords::*;

// Adds to a word in all copies of the write sequence, for any block size.
__device__ inline void AddToSequence(WriteSequence* sequence, SequenceWord word,
                                     unsigned long long amount) {
  for (uint32_t copy = threadIdx.x; copy < WriteSequence::kCopies; copy += blockDim.x)
    atomicAdd(&(sequence->copies[copy].*word), amount);
}

// Registers a writing block at a word of the write sequence, before its first lock. For all threads
// of a block.
__device__ inline void BeginWrites(WriteSequence* sequence, SequenceWord word) {
  AddToSequence(sequence, word, 1);
  if (threadIdx.x < WriteSequence::kCopies) FenceGpu();
  __syncthreads();
}
// Ends the block's entry after its last unlock. The block wrote at most `key_count` keys, and
// `key_count` is at least one: otherwise the word would have its old value again.
__device__ inline void EndWrites(WriteSequence* sequence, SequenceWord word, uint32_t key_count) {
  __syncthreads();
  if (threadIdx.x < WriteSequence::kCopies) FenceGpu();
  AddToSequence(sequence, word,
                (static_cast<unsigned long long>(key_count) << kSequenceKeysShift) - 1);
}

// Runs write(first key of a tile) for the block's warps over all tiles, registered at a word of the
// write sequence.
template <int kTileKeys, typename Write>
__device__ inline void WriteTiles(const WriteLaunch& launch, SequenceWord word,
                                  const Write& write) {
  WriteSequence* const sequence = launch.view.table.write_sequence;
  BeginWrites(sequence, word);
  const uint32_t warps = blockDim.x / kWarpLanes;
  const uint32_t stride = gridDim.x * warps;
  for (uint32_t tile = blockIdx.x * warps + threadIdx.x / kWarpLanes; tile < launch.tile_count;
       tile += stride) {
    write(tile * kTileKeys);
  }
  EndWrites(sequence, word,
            (launch.tile_count / stride + 1) * warps * static_cast<uint32_t>(kTileKeys));
}

// Adds a warp's sum of `amount` to a counter.
__device__ inline void AddToCounter(uint64_t* counter, uint32_t amount) {
  const uint32_t sum = __reduce_add_sync(kAllLanes, amount);
  if (sum != 0 && threadIdx.x % kWarpLanes == 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(counter), static_cast<unsigned long long>(sum));
}

// The slot that holds lane i's key. No lock is needed, because nothing is inserted meanwhile.
template <int kTileKeys>
__device__ inline uint32_t HeldSlot(const TableView& table, uint64_t key, bool active) {
  const SlabPair pair = SlabsOf(key, table.slab_count);
  Probe probe = {0, 0, 0};
  ProbeSlabs<kTileKeys>(table.slabs, pair.first, key, __ballot_sync(kAllLanes, active), probe);
  const bool goes_on = active && probe.matches == 0 && (probe.control & kControlOverflowed) != 0;
  const uint32_t going_on = __ballot_sync(kAllLanes, goes_on);
  if (going_on != 0) ProbeSlabs<kTileKeys>(table.slabs, pair.second, key, going_on, probe);
  if (probe.matches == 0) return kNoSlot;
  return (goes_on ? pair.second : pair.first) * kSlabSlots + __ffs(probe.matches) - 1;
}

__device__ inline RowPlaces PlacesOfTile(const WriteLaunch& launch, uint32_t first) {
  const TableView& table = launch.view.table;
  return {table.rows, table.row_stride_bytes,
          const_cast<std::byte*>(launch.view.rows) + first * launch.view.row_stride_bytes,
          launch.view.row_stride_bytes};
}

inline WriteLaunch LaunchOfWrite(const WriteView& write) {
  WriteLaunch launch = {};
  launch.view = write;
  launch.kind = CopyKindOf(write.table.row_bytes,
                           reinterpret_cast<uintptr_t>(write.rows) | write.row_stride_bytes);
  return launch;
}

// The number of multiprocessors of the current device.
inline uint32_t MultiprocessorCount() {
  int device = 0, count = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) {
    return 1;
  }
  return static_cast<uint32_t>(count);
}

// Divides the write into tiles of a warp and returns the number of blocks: as many as run at a
// time, or are allowed. A block processes many tiles: with a block per few tiles, the atomics on
// the write sequence and the counters alone would take longer than the rows.
inline uint32_t SetTiles(WriteLaunch& launch, uint32_t tile_keys, uint32_t threads,
                         uint32_t blocks_per_multiprocessor) {
  launch.tile_count = (launch.view.key_count + tile_keys - 1) / tile_keys;
  const uint32_t tiles_per_block = threads / kWarpLanes;
  const uint32_t needed = (launch.tile_count + tiles_per_block - 1) / tiles_per_block;
  const uint32_t running = blocks_per_multiprocessor * MultiprocessorCount();
  const uint32_t allowed = launch.view.blocks_max == 0 ? running : launch.view.blocks_max;
  return std::min({needed, running, allowed});
}

}  // namespace hps
