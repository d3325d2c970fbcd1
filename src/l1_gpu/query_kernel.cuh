// The query kernel: one warp per tile of up to 32 keys of one query, for all queries of a call.
//
// Bound: per key it reads the key (8 bytes), one slab (64, which a 64-byte DRAM granule costs also
// if less was asked for; a second one for keys that live in their second slab) and the row, and
// writes the row. A gather by known index reads and writes the row only: 0.93 of its speed is the
// most at 512-byte rows and 0.78 at 128.
//
// Key, slab and row are three dependent reads; everything else hides behind them. Rows go to the
// output before it is known that they are whole, since holding them back costs more than writing
// the few again that are read beside a writer.
#pragma once

#include <cstdint>

#include "l1_gpu/miss_recorder.cuh"
#include "l1_gpu/query_task.h"
#include "l1_gpu/row_copy.cuh"
#include "l1_gpu/slab_reader.cuh"

namespace hps {

// Up to kTasks tasks come with the launch, in constant memory, which is fastest; kTasks = 0: they
// lie in device memory.
template <int kTasks>
struct QueryLaunch {
  QueryTask tasks[kTasks == 0 ? 1 : kTasks];
  uint32_t tile_begins[kTasks == 0 ? 1 : kTasks];  // the tasks', and the greatest number after them
  const QueryTask* tasks_in_memory;
  uint32_t task_count;
  uint32_t tile_count;
  uint32_t generation;
  bool records_misses;
  MissBuffers misses;
};

template <int kTasks>
__device__ inline const QueryTask& TaskOf(const QueryLaunch<kTasks>& launch, uint32_t number) {
  return kTasks == 0 ? launch.tasks_in_memory[number] : launch.tasks[kTasks == 1 ? 0 : number];
}

// Number of the task that a tile belongs to: the last one that does not begin after it.
template <int kTasks>
__device__ inline uint32_t TaskOfTile(const QueryLaunch<kTasks>& launch, uint32_t tile) {
  if constexpr (kTasks > 0) {
    // Counting has no step that waits for the one before, as a search has.
    uint32_t begun = 0;
#pragma unroll
    for (int i = 1; i < kTasks; ++i) begun += launch.tile_begins[i] <= tile ? 1 : 0;
    return begun;
  }
  uint32_t begin = 0;
  for (uint32_t count = launch.task_count; count > 1;) {
    const uint32_t half = count / 2;
    const bool after = TaskOf(launch, begin + half).tile_begin <= tile;
    begin += after ? half : 0;
    count = after ? count - half : half;
  }
  return begin;
}

// What lane i of a warp knows of key i of its tile.
struct TileKey {
  uint64_t key;
  uint32_t position;
  bool active;
};

// Where a tile's keys are, as their slabs said.
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

// Searches one key until its answer is proved; gives its slot. For all lanes of a warp.
__device__ inline uint32_t ReadUntilProved(const QueryTask& task, uint64_t key, uint32_t position) {
  const TableView& table = task.view.table;
  const SlabPair pair = SlabsOf(key, table.slab_count);
  Slab* const first = table.slabs + pair.first;
  Slab* const second = table.slabs + pair.second;
  for (;;) {
    const unsigned long long gate_before = LoadAcquire(&table.gate->state);
    uint32_t control = 0, matches = 0, second_control = 0;
    if (!SearchSlab(first, key, &control, &matches)) continue;
    const bool went_on = matches == 0 && (control & kControlOverflowed) != 0;
    if (went_on && !SearchSlab(second, key, &second_control, &matches)) continue;
    uint32_t slot = kNoSlot;
    uint32_t row_version = 0;
    if (matches != 0) {
      slot = (went_on ? pair.second : pair.first) * kSlabSlots + __ffs(matches) - 1;
      row_version = __shfl_sync(kAllLanes, LoadRelaxed(RowLockOf(table.gate, slot)), 0);
      if ((row_version & kRowLocked) != 0) continue;
      FenceGpu();
      __syncwarp();
      CopyRow(task.kind, task.view.rows + position * task.view.row_stride_bytes,
              table.rows + static_cast<uint64_t>(slot) * table.row_stride_bytes, table.row_bytes);
    }
    FenceGpu();
    __syncwarp();
    const bool stood_still =
        (slot == kNoSlot || LoadRelaxed(RowLockOf(table.gate, slot)) == row_version) &&
        (!went_on || LoadRelaxed(&second->control) == second_control) &&
        LoadRelaxed(&first->control) == control &&
        !VersionsMayHaveWrapped(gate_before, LoadAcquire(&table.gate->state));
    if (__all_sync(kAllLanes, stood_still)) return slot;
  }
}

// Probes the slabs of a tile's keys. For all lanes of a warp.
template <int kTileKeys>
__device__ inline FoundSlot FindSlots(const TableView& table, const TileKey& mine) {
  const SlabPair pair = SlabsOf(mine.key, table.slab_count);
  Probe probe = {0, 0, 0};
  ProbeSlabs<kTileKeys>(table.slabs, pair.first, mine.key, __ballot_sync(kAllLanes, mine.active),
                        probe);
  const bool goes_on =
      mine.active && probe.matches == 0 && (probe.control & kControlOverflowed) != 0;
  const uint32_t going_on = __ballot_sync(kAllLanes, goes_on);
  if (going_on != 0) ProbeSlabs<kTileKeys>(table.slabs, pair.second, mine.key, going_on, probe);
  FoundSlot found;
  found.slab = goes_on ? pair.second : pair.first;
  found.way = __ffs(probe.matches) - 1;
  found.slot = probe.matches != 0 ? found.slab * kSlabSlots + found.way : kNoSlot;
  found.control = probe.control;
  found.stamps = probe.stamps;
  return found;
}

// Other lanes and writers may change stamps at the same time: then one of the stamps is lost.
__device__ inline void Touch(const TableView& table, const FoundSlot& found) {
  if (found.slot == kNoSlot || StampOfSlot(found.stamps, found.way) == table.stamp_epoch) return;
  StoreRelaxed(&table.slabs[found.slab].stamps,
               WithStamp(found.stamps, found.way, table.stamp_epoch));
}

__device__ inline RowPlaces PlacesOfTile(const QueryTask& task, uint32_t first_position) {
  const QueryView& view = task.view;
  return {view.table.rows, view.table.row_stride_bytes,
          view.rows + first_position * view.row_stride_bytes, view.row_stride_bytes};
}

// Reads a tile beside writers: keeps what can be proved, reads the rest key by key. Gives the
// lane's slot. For all lanes of a warp.
template <typename Rows>
__device__ __noinline__ uint32_t ReadTileBesideWriters(const QueryTask& task,
                                                       uint32_t first_position, TileKey mine) {
  const TableView& table = task.view.table;
  const unsigned long long gate_before = LoadAcquire(&table.gate->state);
  const FoundSlot found = FindSlots<Rows::kTileKeys>(table, mine);
  uint32_t slot = found.slot;
  uint32_t row_version = kRowLocked;
  bool readable = false;
  if (slot != kNoSlot) {
    // The key once more, now that the control word is known to have been read before it.
    FenceBehindDependency();
    row_version = LoadRelaxed(RowLockOf(table.gate, slot));
    const uint64_t key = LoadRelaxed(KeyOfSlot(table.slabs + found.slab, found.way));
    readable =
        key == mine.key && (row_version & kRowLocked) == 0 && (found.control & kControlLocked) == 0;
  }
  FenceBehindDependency();
  __syncwarp();
  Rows::template Copy<CopyTo::kArray>(PlacesOfTile(task, first_position), table.row_bytes,
                                      readable ? slot : kNoSlot, task.kind);
  Touch(table, found);
  FenceBehindDependency();
  __syncwarp();
  const bool proved = readable && LoadRelaxed(&table.slabs[found.slab].control) == found.control &&
                      LoadRelaxed(RowLockOf(table.gate, slot)) == row_version &&
                      !VersionsMayHaveWrapped(gate_before, LoadAcquire(&table.gate->state));
  uint32_t unproved = __ballot_sync(kAllLanes, mine.active && !proved);
  for (; unproved != 0; unproved &= unproved - 1) {
    const uint32_t lane = __ffs(unproved) - 1;
    const uint32_t again = ReadUntilProved(task, __shfl_sync(kAllLanes, mine.key, lane),
                                           __shfl_sync(kAllLanes, mine.position, lane));
    if (threadIdx.x % kWarpLanes == lane) slot = again;
  }
  return slot;
}

// Reads a tile as if nobody wrote, and again if somebody did. Gives the lane's slot.
template <typename Rows>
__device__ inline uint32_t ReadTile(const QueryTask& task, uint32_t first_position,
                                    const TileKey& mine) {
  const TableView& table = task.view.table;
  const auto* const gate = reinterpret_cast<const uint64_t*>(&table.gate->state);
  const unsigned long long gate_before =
      kFormalFences ? LoadAcquire(&table.gate->state) : LoadRelaxed(gate);
  if (__all_sync(kAllLanes, IsQuiet(gate_before))) {
    const FoundSlot found = FindSlots<Rows::kTileKeys>(table, mine);
    Rows::template Copy<CopyTo::kArray>(PlacesOfTile(task, first_position), table.row_bytes,
                                        found.slot, task.kind);
    Touch(table, found);
    FenceBehindDependency();
    __syncwarp();
    if (__all_sync(kAllLanes, LoadRelaxed(gate) == gate_before)) return found.slot;
  }
  return ReadTileBesideWriters<Rows>(task, first_position, mine);
}

template <typename Rows, int kTasks>
__device__ inline void QueryTile(const QueryLaunch<kTasks>& launch, uint32_t tile) {
  const uint32_t number = TaskOfTile(launch, tile);
  const QueryTask& task = TaskOf(launch, number);
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t first_position = (tile - task.tile_begin) * Rows::kTileKeys;
  TileKey mine = {0, first_position + lane, false};
  mine.active = lane < Rows::kTileKeys && mine.position < task.view.key_count;
  if (mine.active)
    mine.key = LoadOnce(reinterpret_cast<const uint64_t*>(task.view.keys) + mine.position);
  uint32_t slot = kNoSlot;
  if (task.view.table.slabs != nullptr) slot = ReadTile<Rows>(task, first_position, mine);
  if (slot != kNoSlot && task.view.status != nullptr)
    task.view.status[mine.position] = KeyStatus::kHitL1;
  const bool missing = mine.active && slot == kNoSlot;
  if (launch.records_misses && __any_sync(kAllLanes, missing)) {
    RecordMisses(launch.misses, launch.generation, task.view, number,
                 {mine.key, mine.position, missing});
  }
}

template <typename Rows, int kTasks, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    QueryKernel(const __grid_constant__ QueryLaunch<kTasks> launch) {
  if (launch.records_misses) ClearNextCounters(launch.misses, launch.generation);
  const uint32_t tile = (blockIdx.x * kThreads + threadIdx.x) / kWarpLanes;
  if (tile < launch.tile_count) QueryTile<Rows, kTasks>(launch, tile);
}

}  // namespace hps
