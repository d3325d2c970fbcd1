// The query kernel: one warp per tile of up to 32 keys of one query, for all queries of a call.
//
// Bound: per key it reads the key (8 bytes), one slab (64 bytes, the DRAM granule; a second one for
// keys in their second slab) and the row, and writes the row. A gather by known index only reads
// and writes the row: at most 0.93 of its speed is possible at 512-byte rows and 0.78 at 128.
//
// Key, slab and row are three dependent reads; all other work is hidden behind them. Rows are
// written to the output before they are known to be consistent, because holding them back costs
// more than rewriting the few that were read during a write. A tile is read in one of three modes,
// each of which falls back to the next: assuming no writer, so that slabs and rows may come from
// the multiprocessor's own cache; with concurrent updates only; with any concurrent writer
// (slab_reader.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include "l1_gpu/kernels/direct_reader.cuh"
#include "l1_gpu/kernels/miss_recorder.cuh"
#include "l1_gpu/kernels/query_task.h"
#include "l1_gpu/kernels/row_copy.cuh"
#include "l1_gpu/kernels/slab_reader.cuh"

namespace hps {

// Up to kTasks tasks come with the launch in constant memory, which is fastest; kTasks = 0: they
// are in device memory. Members are ordered by first use: a line of constant memory that was not
// read yet takes as long as a line of L2.
template <int kTasks>
struct QueryLaunch {
  // The first block of each task, followed by UINT32_MAX. Not read if each task has a row of the
  // grid.
  uint32_t block_begins[kTasks == 0 ? 1 : kTasks];
  uint32_t task_count;
  const QueryTask* tasks_in_memory;
  QueryTask tasks[kTasks == 0 ? 1 : kTasks];
  QueryCall call;
};

// The launch of a query that reads level 2.
template <int kTasks>
struct DirectLaunch : QueryLaunch<kTasks> {
  DirectRows direct[kTasks];  // of each task; without lines: none
};
template <int kTasks, bool kDirect>
using LaunchOf = std::conditional_t<kDirect, DirectLaunch<kTasks>, QueryLaunch<kTasks>>;

// A block's task, and the block's number within the task. All keys of a block belong to one task,
// so that the task is found once and is the same for all warps.
struct BlockPlace {
  uint32_t task;
  uint32_t block;
};

// The first block of a task in device memory. Each earlier task gets one block more than it may
// need, so that the number of keys before the task determines its first block.
template <uint32_t kBlockKeys>
constexpr uint32_t BlockBeginInMemory(uint32_t number, uint32_t first_key) {
  return first_key / kBlockKeys + number;
}

template <int kTasks, uint32_t kBlockKeys>
__device__ inline BlockPlace PlaceOfBlock(const QueryLaunch<kTasks>& launch) {
  if (kTasks == 1) return {0, blockIdx.x};
  if (gridDim.y > 1) return {blockIdx.y, blockIdx.x};
  // The last task that begins at or before this block.
  if constexpr (kTasks > 0) {
    // Counting has no dependent steps, unlike a search.
    uint32_t begun = 0;
#pragma unroll
    for (int i = 1; i < kTasks; ++i) begun += launch.block_begins[i] <= blockIdx.x ? 1 : 0;
    return {begun, blockIdx.x - launch.block_begins[begun]};
  }
  const auto begin_of = [&](uint32_t number) {
    return BlockBeginInMemory<kBlockKeys>(number, launch.tasks_in_memory[number].first_key);
  };
  uint32_t begin = 0;
  for (uint32_t count = launch.task_count; count > 1;) {
    const uint32_t half = count / 2;
    const bool after = begin_of(begin + half) <= blockIdx.x;
    begin += after ? half : 0;
    count = after ? count - half : half;
  }
  return {begin, blockIdx.x - begin_of(begin)};
}

// Lane i's knowledge of key i of its warp's tile.
struct TileKey {
  uint64_t key;
  uint32_t position;
  bool active;
};

// The location of a key, according to its slabs.
struct FoundSlot {
  uint32_t slab;
  uint32_t way;
  uint32_t slot;  // in the table; kNoSlot: not held
  uint32_t control;
  uint32_t stamps;
};

template <typename Unit>
__device__ inline void CopyRow(std::byte* to, const std::byte* from, uint32_t row_bytes) {
  for (uint32_t i = threadIdx.x % kWarpLanes; i < row_bytes / sizeof(Unit); i += kWarpLanes) {
    reinterpret_cast<Unit*>(to)[i] = LoadRelaxed(reinterpret_cast<const Unit*>(from) + i);
  }
}

__device__ inline void CopyRow(CopyKind kind, std::byte* to, const std::byte* from,
                               uint32_t row_bytes) {
  if (kind == CopyKind::kBytes) {
    CopyRow<uint8_t>(to, from, row_bytes);
  } else if (kind == CopyKind::kWords) {
    CopyRow<uint32_t>(to, from, row_bytes);
  } else {
    CopyRow<uint4>(to, from, row_bytes);
  }
}

// Searches one key until its answer is proved; returns its slot. For all lanes of a warp.
__device__ inline uint32_t ReadUntilProved(const QueryTask& task, WriteSequence* sequence,
                                           uint64_t key, uint32_t position) {
  const SequenceWords* const words = SequenceOfWarp(sequence);
  const SlabPair pair = SlabsOf(key, task.slab_count);
  Slab* const first = task.slabs + pair.first;
  Slab* const second = task.slabs + pair.second;
  uint32_t* const row_lock = RowLockOf(sequence, key);
  for (;;) {
    const unsigned long long sequence_before = LoadAcquire(&words->slabs);
    uint32_t control = 0, matches = 0, second_control = 0;
    if (!SearchSlab(first, key, &control, &matches)) continue;
    const bool went_on = matches == 0 && (control & kControlOverflowed) != 0;
    if (went_on && !SearchSlab(second, key, &second_control, &matches)) continue;
    uint32_t slot = kNoSlot;
    uint32_t row_version = 0;
    if (matches != 0) {
      slot = (went_on ? pair.second : pair.first) * kSlabSlots + __ffs(matches) - 1;
      row_version = __shfl_sync(kAllLanes, LoadRelaxed(row_lock), 0);
      if ((row_version & kRowLocked) != 0) continue;
      FenceGpu();
      __syncwarp();
      CopyRow(task.kind, task.rows + position * task.row_stride_bytes,
              task.table_rows + static_cast<uint64_t>(slot) * RowStrideBytes(task.row_bytes),
              task.row_bytes);
    }
    FenceGpu();
    __syncwarp();
    const bool stood_still = (slot == kNoSlot || LoadRelaxed(row_lock) == row_version) &&
                             (!went_on || LoadRelaxed(&second->control) == second_control) &&
                             LoadRelaxed(&first->control) == control &&
                             !VersionsMayHaveWrapped(sequence_before, LoadAcquire(&words->slabs));
    if (__all_sync(kAllLanes, stood_still)) return slot;
  }
}

__device__ inline FoundSlot FoundIn(uint32_t slab, const Probe& probe) {
  FoundSlot found;
  found.slab = slab;
  found.way = __ffs(probe.matches) - 1;
  found.slot = probe.matches != 0 ? slab * kSlabSlots + found.way : kNoSlot;
  found.control = probe.control;
  found.stamps = probe.stamps;
  return found;
}

// Tiles of up to this many keys belong to latency-bound calls: both slabs of a key are read at
// once, with one instruction for the tile.
inline constexpr int kBothSlabsTileKeys = 4;

template <Concurrency kConcurrency>
__device__ inline FoundSlot FindSlotsAtOnce(const QueryTask& task, const TileKey& mine) {
  const SlabPair pair = SlabsOf(mine.key, task.slab_count);
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t owner = lane % kBothSlabsTileKeys;
  const uint64_t key = __shfl_sync(kAllLanes, mine.key, owner);
  const uint32_t second = __shfl_sync(kAllLanes, pair.second, owner);
  const uint32_t active = __ballot_sync(kAllLanes, mine.active);
  Probe probe = {0, 0, 0};
  ProbeSlabs<2 * kBothSlabsTileKeys, kConcurrency>(
      task.slabs, lane < kBothSlabsTileKeys ? pair.first : second, key,
      active | active << kBothSlabsTileKeys, probe);
  Probe other;
  other.control = __shfl_sync(kAllLanes, probe.control, owner + kBothSlabsTileKeys);
  other.stamps = __shfl_sync(kAllLanes, probe.stamps, owner + kBothSlabsTileKeys);
  other.matches = __shfl_sync(kAllLanes, probe.matches, owner + kBothSlabsTileKeys);
  if (!mine.active) probe.matches = other.matches = 0;
  const bool in_second = probe.matches == 0 && other.matches != 0;
  return FoundIn(in_second ? pair.second : pair.first, in_second ? other : probe);
}

// Probes the slabs of a tile's keys. For all lanes of a warp.
template <int kTileKeys, Concurrency kConcurrency = Concurrency::kWriters>
__device__ inline FoundSlot FindSlots(const QueryTask& task, const TileKey& mine) {
  if constexpr (kTileKeys <= kBothSlabsTileKeys) return FindSlotsAtOnce<kConcurrency>(task, mine);
  const SlabPair pair = SlabsOf(mine.key, task.slab_count);
  Probe probe = {0, 0, 0};
  ProbeSlabs<kTileKeys, kConcurrency>(task.slabs, pair.first, mine.key,
                                      __ballot_sync(kAllLanes, mine.active), probe);
  const bool goes_on =
      mine.active && probe.matches == 0 && (probe.control & kControlOverflowed) != 0;
  const uint32_t going_on = __ballot_sync(kAllLanes, goes_on);
  if (going_on != 0)
    ProbeSlabs<kTileKeys, kConcurrency>(task.slabs, pair.second, mine.key, going_on, probe);
  return FoundIn(goes_on ? pair.second : pair.first, probe);
}

// Other lanes and writers may change stamps at the same time; then one stamp is lost. The word is
// read again, because otherwise all stamps written since the probe would be lost. This is rare.
__device__ inline void Touch(const QueryTask& task, const FoundSlot& found) {
  if (found.slot == kNoSlot || StampOfSlot(found.stamps, found.way) == task.stamp_epoch) return;
  uint32_t* const stamps = &task.slabs[found.slab].stamps;
  StoreRelaxed(stamps, WithStamp(LoadRelaxed(stamps), found.way, task.stamp_epoch));
}

__device__ inline RowPlaces PlacesOfTile(const QueryTask& task, uint32_t first_position) {
  return {task.table_rows, RowStrideBytes(task.row_bytes),
          task.rows + first_position * task.row_stride_bytes, task.row_stride_bytes};
}

// A tile's task and its number; with kDirect, also what the task has of level 2.
template <bool kDirect>
struct TileTask {
  const QueryTask& task;
  uint32_t number;
  const DirectRows* direct;
};

// Writes the rows and statuses of missing keys that level 2 holds; true for lanes that it has
// answered. For all lanes of a warp, at least one of them missing.
__device__ inline bool AnswerFromLevel2(const QueryCall& call, const DirectRows& direct,
                                        const QueryTask& task, const TileKey& mine,
                                        uint32_t misses) {
  if (direct.lines == nullptr) return false;
  const uint32_t place = TakePlaces(&CountersOfHalf(call.misses, call.generation)->direct, misses);
  if (__shfl_sync(kAllLanes, place, __ffs(misses) - 1) >= kDirectMissesMax) return false;
  const uint32_t lanes = ReadDirectRows(direct, task, misses, mine.key, mine.position);
  const bool answered = (lanes >> threadIdx.x % kWarpLanes & 1) != 0;
  if (answered && task.status != nullptr) task.status[mine.position] = KeyStatus::kHitL2;
  return answered;
}

// Writes status and miss of the lane's key, whose slot is known. For all lanes of a warp.
template <bool kDirect>
__device__ inline void Answer(const QueryCall& call, const TileTask<kDirect>& of,
                              const TileKey& mine, uint32_t slot) {
  const QueryTask& task = of.task;
  if (slot != kNoSlot && task.status != nullptr) task.status[mine.position] = KeyStatus::kHitL1;
  const bool missing = mine.active && slot == kNoSlot;
  const uint32_t misses = __ballot_sync(kAllLanes, missing);
  if (!call.records_misses || misses == 0) return;
  bool answered = false;
  if constexpr (kDirect) answered = AnswerFromLevel2(call, *of.direct, task, mine, misses);
  RecordMisses(call.misses, call.generation, task, of.number,
               {mine.key, mine.position, missing, answered});
}

// Rows that were being overwritten are read again together this often before they are read one by
// one: keys that are queried together are often updated together.
inline constexpr int kRoundsUnderWriters = 8;

// Reads a tile during updates, which do not change slabs: only rows must be proved. Returns the
// lane's slot, or false if slabs were changed. For all lanes of a warp.
template <typename Rows>
__device__ inline bool ReadTileUnderUpdates(const QueryTask& task, WriteSequence* sequence,
                                            unsigned long long before, const TileKey& mine,
                                            uint32_t& slot) {
  FenceBehindDependency();
  if (!__all_sync(kAllLanes, IsQuiet(before))) return false;
  const uint32_t* const row_lock = RowLockOf(sequence, mine.key);
  uint32_t version = kRowLocked;
  if (mine.active) version = LoadRelaxed(row_lock);
  const FoundSlot found = FindSlots<Rows::kTileKeys>(task, mine);
  Touch(task, found);
  const uint32_t first_position = __shfl_sync(kAllLanes, mine.position, 0);
  bool pending = found.slot != kNoSlot;
  for (int round = 0; round < kRoundsUnderWriters && __any_sync(kAllLanes, pending); ++round) {
    FenceBehindDependency();
    const bool readable = pending && (version & kRowLocked) == 0;
    Rows::template Copy<CopyTo::kArray>(PlacesOfTile(task, first_position), task.row_bytes,
                                        readable ? found.slot : kNoSlot, task.kind);
    FenceBehindDependency();
    __syncwarp();
    const uint32_t version_before = version;
    if (pending) version = LoadRelaxed(row_lock);
    pending = pending && !(readable && version == version_before);
  }
  slot = found.slot;
  return __all_sync(kAllLanes, !pending && LoadSequence(SequenceOfWarp(sequence)).x == before);
}

// Reads a tile during any writes: keeps what can be proved and reads the rest again. Returns the
// lane's slot. For all lanes of a warp.
template <typename Rows>
__device__ inline uint32_t ReadTileUnderWriters(const QueryTask& task, WriteSequence* sequence,
                                                const TileKey& mine) {
  const SequenceWords* const words = SequenceOfWarp(sequence);
  const uint32_t first_position = __shfl_sync(kAllLanes, mine.position, 0);
  uint32_t slot = kNoSlot;
  bool pending = mine.active;
  bool not_found = false;
  for (int round = 0; round < kRoundsUnderWriters && __any_sync(kAllLanes, pending); ++round) {
    const unsigned long long sequence_before = LoadAcquire(&words->slabs);
    const FoundSlot found = FindSlots<Rows::kTileKeys>(task, {mine.key, mine.position, pending});
    uint32_t row_version = kRowLocked;
    bool readable = false;
    if (found.slot != kNoSlot) {
      // Reads the key again, now that the control word is known to have been read before it.
      FenceBehindDependency();
      row_version = LoadRelaxed(RowLockOf(sequence, mine.key));
      const uint64_t key = LoadRelaxed(KeyOfSlot(task.slabs + found.slab, found.way));
      readable = key == mine.key && (row_version & kRowLocked) == 0 &&
                 (found.control & kControlLocked) == 0;
    }
    FenceBehindDependency();
    __syncwarp();
    Rows::template Copy<CopyTo::kArray>(PlacesOfTile(task, first_position), task.row_bytes,
                                        readable ? found.slot : kNoSlot, task.kind);
    Touch(task, found);
    FenceBehindDependency();
    __syncwarp();
    const bool proved = readable && LoadRelaxed(&task.slabs[found.slab].control) == found.control &&
                        LoadRelaxed(RowLockOf(sequence, mine.key)) == row_version &&
                        !VersionsMayHaveWrapped(sequence_before, LoadAcquire(&words->slabs));
    if (proved) slot = found.slot;
    not_found |= pending && found.slot == kNoSlot;
    pending = pending && found.slot != kNoSlot && !proved;
  }
  uint32_t unproved = __ballot_sync(kAllLanes, pending || not_found);
  for (; unproved != 0; unproved &= unproved - 1) {
    const uint32_t lane = __ffs(unproved) - 1;
    const uint32_t again = ReadUntilProved(task, sequence, __shfl_sync(kAllLanes, mine.key, lane),
                                           __shfl_sync(kAllLanes, mine.position, lane));
    if (threadIdx.x % kWarpLanes == lane) slot = again;
  }
  return slot;
}

// These two functions are separate, and called last by a warp, so that their registers do not count
// for the fast path.
template <typename Rows, bool kDirect>
__device__ __noinline__ void AnswerUnderWriters(const QueryCall& call, TileTask<kDirect> of,
                                                TileKey mine) {
  const uint32_t slot = ReadTileUnderWriters<Rows>(of.task, call.write_sequence, mine);
  Answer(call, of, mine, slot);
}

template <typename Rows, bool kDirect>
__device__ __noinline__ void AnswerUnderUpdates(const QueryCall& call, TileTask<kDirect> of,
                                                TileKey mine, unsigned long long sequence_before) {
  uint32_t slot = kNoSlot;
  if (!ReadTileUnderUpdates<Rows>(of.task, call.write_sequence, sequence_before, mine, slot))
    return AnswerUnderWriters<Rows>(call, of, mine);
  Answer(call, of, mine, slot);
}

// Answers a tile assuming no writer, and again if there was one.
template <typename Rows, bool kDirect>
__device__ inline void AnswerTile(const QueryCall& call, const TileTask<kDirect>& of,
                                  const TileKey& mine) {
  const QueryTask& task = of.task;
  // Neither word ever decreases below its last quiescent value, so comparing their sum compares
  // both.
  const auto sum = [](ulonglong2 sequence) { return sequence.x + sequence.y; };
  const SequenceWords* const words = SequenceOfWarp(call.write_sequence);
  const ulonglong2 sequence = AcquireSequence(words);
  const unsigned long long before = sum(sequence);
  if (!__all_sync(kAllLanes, IsQuiet(before)))
    return AnswerUnderUpdates<Rows>(call, of, mine, sequence.x);
  const FoundSlot found = FindSlots<Rows::kTileKeys, Concurrency::kQuiescent>(task, mine);
  const uint32_t first_position = mine.position - threadIdx.x % kWarpLanes;
  Rows::template Copy<CopyTo::kArrayOfQuiescent>(PlacesOfTile(task, first_position), task.row_bytes,
                                                 found.slot, task.kind);
  Touch(task, found);
  FenceBehindDependency();
  __syncwarp();
  if (__all_sync(kAllLanes, sum(LoadSequence(words)) == before))
    return Answer(call, of, mine, found.slot);
  AnswerUnderUpdates<Rows>(call, of, mine, LoadSequence(words).x);
}

// Loads a kernel parameter early, so that it is in flight while the kernel waits.
__device__ inline void PrefetchParameter(const void* pointer) {
  asm volatile("" : : "l"(pointer) : "memory");
}
__device__ inline void PrefetchParameter(uint32_t number) {
  asm volatile("" : : "r"(number) : "memory");
}

template <typename Rows, int kTasks, int kThreads, int kBlocks, bool kDirect>
__global__ void __launch_bounds__(kThreads, kBlocks)
    QueryKernel(const __grid_constant__ LaunchOf<kTasks, kDirect> launch) {
  constexpr uint32_t kBlockKeys = Rows::kTileKeys * (kThreads / kWarpLanes);
  if constexpr (kTasks == 0) WaitForKernelBefore();
  const QueryCall& call = launch.call;
  const BlockPlace place = PlaceOfBlock<kTasks, kBlockKeys>(launch);
  const QueryTask& task =
      kTasks == 0 ? launch.tasks_in_memory[place.task] : launch.tasks[place.task];
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t first_position =
      place.block * kBlockKeys + threadIdx.x / kWarpLanes * Rows::kTileKeys;
  TileKey mine = {0, first_position + lane, false};
  mine.active = lane < Rows::kTileKeys && mine.position < task.key_count;
  const auto* const key = reinterpret_cast<const uint64_t*>(task.keys) + mine.position;
  if constexpr (kTasks != 0) {
    PrefetchParameter(key);
    PrefetchParameter(task.slabs);
    PrefetchParameter(task.slab_count);
    PrefetchParameter(call.write_sequence);
    WaitForKernelBefore();
  }
  if (mine.active) mine.key = LoadNonCoherent(key);
  if (call.records_misses && blockIdx.y == 0) ClearNextCounters(call.misses, call.generation);
  if (first_position >= task.key_count) return;
  const DirectRows* direct = nullptr;
  if constexpr (kDirect) direct = &launch.direct[place.task];
  const TileTask<kDirect> of = {task, place.task, direct};
  if (task.slabs != nullptr) {
    AnswerTile<Rows>(call, of, mine);
  } else {
    Answer(call, of, mine, kNoSlot);
  }
}

}  // namespace hps
