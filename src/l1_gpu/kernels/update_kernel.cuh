// Overwrites and removes held keys.
//
// Bound of an update: per key it reads the key, a slab of 64 bytes and the new row and writes the
// row; a scatter by known index reads and writes the row only.
#pragma once

#include <cstdint>

#include "l1_gpu/kernels/slab_writer.cuh"

namespace hps {

template <typename Rows>
__device__ inline uint32_t UpdateTile(const WriteLaunch& launch, uint32_t first) {
  const TableView& table = launch.view.table;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const RowPlaces places = PlacesOfTile(launch, first);
  if constexpr (requires { Rows::Stage(places, 0); })
    Rows::Stage(places, launch.view.key_count - first);
  const bool active = lane < Rows::kTileKeys && first + lane < launch.view.key_count;
  uint64_t key = 0;
  if (active)
    key = LoadNonCoherent(reinterpret_cast<const uint64_t*>(launch.view.keys) + first + lane);
  const uint32_t slot = HeldSlot<Rows::kTileKeys>(table, key, active);
  uint32_t* const row_lock = RowLockOf(table.write_sequence, key);
  bool pending = slot != kNoSlot;
  const uint32_t updated = pending ? 1 : 0;
  while (__any_sync(kAllLanes, pending)) {
    uint32_t version = kRowLocked;
    if (pending) version = atomicOr(row_lock, kRowLocked);
    const bool locked = (version & kRowLocked) == 0;
    FenceBehindDependency();
    __syncwarp();
    Rows::template Copy<CopyTo::kTable>(places, table.row_bytes, locked ? slot : kNoSlot,
                                        launch.kind);
    FenceGpu();
    __syncwarp();
    if (locked) {
      StoreRelaxed(row_lock, version + kRowVersionStep);
      pending = false;
    }
  }
  return updated;
}

template <typename Rows, int kThreads, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    UpdateKernel(const __grid_constant__ WriteLaunch launch) {
  uint32_t updated = 0;
  WriteTiles<Rows::kTileKeys>(launch, &SequenceWords::rows,
                              [&](uint32_t first) { updated += UpdateTile<Rows>(launch, first); });
  AddToCounter(&launch.view.table.counters->updates, updated);
}

inline constexpr int kEraseTileKeys = 32;

__device__ inline uint32_t EraseTile(const WriteLaunch& launch, uint32_t first) {
  const TableView& table = launch.view.table;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const bool active = first + lane < launch.view.key_count;
  uint64_t key = 0;
  if (active)
    key = LoadNonCoherent(reinterpret_cast<const uint64_t*>(launch.view.keys) + first + lane);
  const uint32_t slot = HeldSlot<kEraseTileKeys>(table, key, active);
  Slab* const slab = table.slabs + slot / kSlabSlots;
  bool pending = slot != kNoSlot;
  uint32_t erased = 0;
  while (__any_sync(kAllLanes, pending)) {
    uint32_t control = kControlLocked;
    if (pending) control = atomicOr(&slab->control, kControlLocked);
    if ((control & kControlLocked) != 0) continue;
    FenceGpu();
    // A duplicate of the key may have been erased here already.
    const uint32_t without = WithoutSlot(control, slot % kSlabSlots);
    erased += without != control ? 1 : 0;
    Unlock(slab, without != control ? without + kControlVersionStep : control);
    pending = false;
  }
  return erased;
}

}  // namespace hps
