// Bound: the device's memory. A gather of 512-byte rows reads and writes 1,024 bytes a row and 4 of
// its index; on an H200 it moves 3,970 M rows/s, and 14,000 M rows/s of 128 bytes.
#include "bench/l1/bound_kernels.h"

#include "gpu/kernel_launch.h"
#include "l1_gpu/kernels/row_copy.cuh"
#include "l1_gpu/kernels/slab_writer.cuh"

namespace hps {
namespace {

constexpr int kThreads = 256;

// One thread per 16 bytes of the output, kDepth of them in flight.
template <int kUnits, int kBlockThreads, int kDepth, bool kStreamed>
__global__ void __launch_bounds__(kBlockThreads) FlatGather(const RowMove move) {
  WaitForKernelBefore();
  const uint64_t first = uint64_t{blockIdx.x} * kBlockThreads * kDepth + threadIdx.x;
  const uint64_t total = uint64_t{move.count} * kUnits;
  const auto* const from = reinterpret_cast<const uint4*>(move.table);
  auto* const to = reinterpret_cast<uint4*>(move.array);
  uint32_t slots[kDepth];
  uint4 values[kDepth];
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    const uint64_t unit = first + uint64_t{kBlockThreads} * i;
    slots[i] = unit < total ? __ldg(move.slots + unit / kUnits) : kNoSlot;
  }
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    const uint64_t unit = first + uint64_t{kBlockThreads} * i;
    if (slots[i] != kNoSlot) values[i] = __ldg(from + uint64_t{slots[i]} * kUnits + unit % kUnits);
  }
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {
    if (slots[i] == kNoSlot) continue;
    uint4* const unit = to + first + uint64_t{kBlockThreads} * i;
    if (kStreamed) {
      StoreStreamed(unit, values[i]);
    } else {
      *unit = values[i];
    }
  }
}

// A warp copies the rows of a tile, as queries and updates do.
template <typename Rows, CopyTo kTo, int kBlockThreads, int kBlocks>
__global__ void __launch_bounds__(kBlockThreads, kBlocks) TileCopy(const RowMove move) {
  const uint32_t tile = (blockIdx.x * kBlockThreads + threadIdx.x) / kWarpLanes;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const uint32_t first = tile * Rows::kTileKeys;
  if (first >= move.count) return;
  uint32_t slot = kNoSlot;
  if (lane < Rows::kTileKeys && first + lane < move.count) slot = __ldg(move.slots + first + lane);
  const RowPlaces places = {move.table, move.row_bytes,
                            move.array + uint64_t{first} * move.row_bytes, move.row_bytes};
  Rows::template Copy<kTo>(places, move.row_bytes, slot, CopyKind::kUnits);
}

// Ahead, as queries are launched.
template <int kUnits, int kBlockThreads, int kDepth, bool kStreamed = false>
cudaError_t LaunchFlat(const RowMove& move, cudaStream_t stream) {
  constexpr uint64_t kPerBlock = uint64_t{kBlockThreads} * kDepth;
  const auto blocks =
      static_cast<uint32_t>((uint64_t{move.count} * kUnits + kPerBlock - 1) / kPerBlock);
  return LaunchKernelAhead<FlatGather<kUnits, kBlockThreads, kDepth, kStreamed>>(
      {blocks, kBlockThreads, stream}, move);
}

template <typename Rows, CopyTo kTo, int kBlockThreads, int kBlocks>
cudaError_t LaunchTiles(const RowMove& move, cudaStream_t stream) {
  constexpr uint32_t kPerBlock = Rows::kTileKeys * kBlockThreads / kWarpLanes;
  const uint32_t blocks = (move.count + kPerBlock - 1) / kPerBlock;
  return LaunchKernel<TileCopy<Rows, kTo, kBlockThreads, kBlocks>>({blocks, kBlockThreads, stream},
                                                                   move);
}

template <int kUnits>
cudaError_t LaunchFlatOf(int shape, const RowMove& move, cudaStream_t stream) {
  switch (shape) {
    case 0:
      return LaunchFlat<kUnits, 256, 1>(move, stream);
    case 1:
      return LaunchFlat<kUnits, 256, 2>(move, stream);
    case 2:
      return LaunchFlat<kUnits, 128, 2>(move, stream);
    case 3:
      return LaunchFlat<kUnits, 256, 4>(move, stream);
    default:
      return LaunchFlat<kUnits, 256, 4, true>(move, stream);
  }
}

template <int kUnits>
cudaError_t LaunchGatherOf(int shape, const RowMove& move, cudaStream_t stream) {
  switch (shape) {
    case 4:
      return LaunchTiles<RowsOfUnits<kUnits, 4, 4>, CopyTo::kArray, 128, 8>(move, stream);
    case 5:
      return LaunchTiles<RowsOfUnits<kUnits, 8, 4>, CopyTo::kArray, 256, 6>(move, stream);
    case 6:
      return LaunchTiles<RowsOfUnits<kUnits, 32, 4>, CopyTo::kArray, 256, 6>(move, stream);
    default:
      return LaunchFlatOf<kUnits>(shape, move, stream);
  }
}

template <int kUnits>
cudaError_t LaunchScatterOf(int shape, const RowMove& move, cudaStream_t stream) {
  switch (shape) {
    case 0:
      return LaunchTiles<RowsOfUnits<kUnits, 4, 4>, CopyTo::kTable, 256, 6>(move, stream);
    case 1:
      return LaunchTiles<RowsOfUnits<kUnits, 8, 4>, CopyTo::kTable, 256, 6>(move, stream);
    default:
      return LaunchTiles<RowsOfUnits<kUnits, 16, 4>, CopyTo::kTable, 256, 6>(move, stream);
  }
}

__global__ void __launch_bounds__(kThreads)
    FindSlotsKernel(const TableView table, const Key* keys, uint32_t count, uint32_t* slots,
                    uint32_t* missing) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  const uint64_t key = i < count ? static_cast<uint64_t>(keys[i]) : 0;
  const uint32_t slot = HeldSlot<kWarpLanes>(table, key, i < count);
  if (i >= count) return;
  if (slot == kNoSlot) atomicAdd(missing, 1u);
  slots[i] = slot == kNoSlot ? 0 : slot;
}

__device__ inline uint32_t WordOfRow(Key key, uint64_t word) {
  uint64_t mixed = (static_cast<uint64_t>(key) + word * 0xa0761d6478bd642f) * 0x9e3779b97f4a7c15;
  return static_cast<uint32_t>((mixed ^ mixed >> 32) * 0xd6e8feb86659fd93 >> 32);
}

__global__ void __launch_bounds__(kThreads)
    MakeRowsKernel(const Key* keys, uint64_t words, uint32_t row_words, uint32_t* rows) {
  const uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < words) rows[i] = WordOfRow(keys[i / row_words], i % row_words);
}

// One warp per row.
__global__ void __launch_bounds__(kThreads)
    CompareRowsKernel(const Key* keys, uint32_t count, uint32_t row_words, const uint32_t* rows,
                      uint32_t* different) {
  const uint32_t row = (blockIdx.x * kThreads + threadIdx.x) / kWarpLanes;
  if (row >= count) return;
  bool differs = false;
  for (uint32_t word = threadIdx.x % kWarpLanes; word < row_words; word += kWarpLanes)
    differs |= rows[uint64_t{row} * row_words + word] != WordOfRow(keys[row], word);
  if (__any_sync(kAllLanes, differs) && threadIdx.x % kWarpLanes == 0) atomicAdd(different, 1u);
}

}  // namespace

cudaError_t LaunchGather(int shape, const RowMove& move, cudaStream_t stream) {
  switch (move.row_bytes) {
    case 128:
      return LaunchGatherOf<8>(shape, move, stream);
    case 256:
      return LaunchGatherOf<16>(shape, move, stream);
    case 512:
      return LaunchGatherOf<32>(shape, move, stream);
    case 4096:
      return LaunchFlatOf<256>(shape, move, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t LaunchScatterRows(int shape, const RowMove& move, cudaStream_t stream) {
  switch (move.row_bytes) {
    case 128:
      return LaunchScatterOf<8>(shape, move, stream);
    case 256:
      return LaunchScatterOf<16>(shape, move, stream);
    case 512:
      return LaunchScatterOf<32>(shape, move, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t LaunchFindSlots(const TableView& table, const KeyList& list, uint32_t* slots,
                            uint32_t* missing, cudaStream_t stream) {
  const uint32_t blocks = (list.count + kThreads - 1) / kThreads;
  return LaunchKernel<FindSlotsKernel>({blocks, kThreads, stream}, table, list.keys, list.count,
                                       slots, missing);
}

cudaError_t LaunchMakeRows(const KeyList& list, uint32_t row_bytes, std::byte* rows,
                           cudaStream_t stream) {
  const uint64_t words = uint64_t{list.count} * row_bytes / 4;
  const auto blocks = static_cast<uint32_t>((words + kThreads - 1) / kThreads);
  return LaunchKernel<MakeRowsKernel>({blocks, kThreads, stream}, list.keys, words, row_bytes / 4,
                                      reinterpret_cast<uint32_t*>(rows));
}

cudaError_t LaunchCompareRows(const KeyList& list, uint32_t row_bytes, const std::byte* rows,
                              uint32_t* different, cudaStream_t stream) {
  constexpr uint32_t kRowsPerBlock = kThreads / kWarpLanes;
  const uint32_t blocks = (list.count + kRowsPerBlock - 1) / kRowsPerBlock;
  return LaunchKernel<CompareRowsKernel>({blocks, kThreads, stream}, list.keys, list.count,
                                         row_bytes / 4, reinterpret_cast<const uint32_t*>(rows),
                                         different);
}

}  // namespace hps
