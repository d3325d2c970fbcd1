// Operations on whole tables: dump all keys, remove all keys.
//
// Bound: each reads all slabs, 64 bytes per seven slots.
#include "gpu/kernel_launch.h"
#include "l1_gpu/kernels/kernels.h"
#include "l1_gpu/kernels/slab_writer.cuh"

namespace hps {
namespace {

constexpr int kThreads = 256;

uint32_t BlocksFor(uint32_t slabs) { return (slabs + kThreads - 1) / kThreads; }

// Runs between writes, so it locks nothing. One thread per slab.
__global__ void __launch_bounds__(kThreads)
    DumpKernel(const TableView table, SlabRange slabs, Key* keys, uint32_t* key_count) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t number = slabs.begin + blockIdx.x * kThreads + threadIdx.x;
  Slab* const slab = table.slabs + (number < slabs.end ? number : slabs.begin);
  const uint32_t valid = number < slabs.end ? ValidSlots(LoadRelaxed(&slab->control)) : 0;
  uint32_t end = __popc(valid);
  for (uint32_t step = 1; step < kWarpLanes; step *= 2) {
    const uint32_t below = __shfl_up_sync(kAllLanes, end, step);
    if (lane >= step) end += below;
  }
  uint32_t first = 0;
  if (lane == kWarpLanes - 1) first = atomicAdd(key_count, end);
  first = __shfl_sync(kAllLanes, first, kWarpLanes - 1);
  uint32_t place = first + end - __popc(valid);
  for (uint32_t slot = 0; slot < kSlabSlots; ++slot) {
    if ((valid >> slot & 1) != 0)
      keys[place++] = static_cast<Key>(LoadRelaxed(KeyOfSlot(slab, slot)));
  }
}

// No other writer runs, so a slab needs no lock: one store empties it.
__global__ void __launch_bounds__(kThreads) ClearKernel(const TableView table) {
  BeginWrites(table.write_sequence, &SequenceWords::slabs);
  const uint32_t number = blockIdx.x * kThreads + threadIdx.x;
  uint32_t cleared = 0;
  if (number < table.slab_count) {
    uint32_t* const control = &table.slabs[number].control;
    const uint32_t before = LoadRelaxed(control);
    cleared = __popc(ValidSlots(before));
    StoreRelaxed(control, (before & ~(kControlVersionStep - 1)) + kControlVersionStep);
  }
  EndWrites(table.write_sequence, &SequenceWords::slabs, kThreads);
  AddToCounter(&table.counters->cleared, cleared);
}

}  // namespace

cudaError_t LaunchDump(const TableView& table, SlabRange slabs, Key* keys, uint32_t* key_count,
                       cudaStream_t stream) {
  if (slabs.begin >= slabs.end) return cudaSuccess;
  return LaunchKernel<DumpKernel>({BlocksFor(slabs.end - slabs.begin), kThreads, stream}, table,
                                  slabs, keys, key_count);
}

cudaError_t LaunchClear(const TableView& table, cudaStream_t stream) {
  return LaunchKernel<ClearKernel>({BlocksFor(table.slab_count), kThreads, stream}, table);
}

}  // namespace hps
