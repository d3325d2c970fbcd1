#include "gpu/kernel_launch.h"
#include "l1_gpu/kernels/kernels.h"
#include "l1_gpu/kernels/update_kernel.cuh"

namespace hps {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    EraseKernel(const __grid_constant__ WriteLaunch launch) {
  uint32_t erased = 0;
  WriteTiles<kEraseTileKeys>(launch, &SequenceWords::slabs,
                             [&](uint32_t first) { erased += EraseTile(launch, first); });
  AddToCounter(&launch.view.table.counters->erased, erased);
}

template <typename Rows, int kBlocks>
cudaError_t Launch(WriteLaunch launch, cudaStream_t stream) {
  LaunchShape shape = {SetTiles(launch, Rows::kTileKeys, kThreads, kBlocks), kThreads, stream};
  // With this share only one block would fit on a multiprocessor. An update that may use the whole
  // device runs several there.
  if (launch.view.blocks_max != 0) shape.shared_percent = kSharedPercentConcurrent;
  return LaunchKernel<UpdateKernel<Rows, kThreads, kBlocks>>(shape, launch);
}

}  // namespace

cudaError_t LaunchUpdate(const WriteView& write, cudaStream_t stream) {
  if (write.key_count == 0) return cudaSuccess;
  const WriteLaunch launch = LaunchOfWrite(write);
  switch (launch.kind) {
    case CopyKind::kUnits32:
      return Launch<StagedRowsOfUnits<32, 8, kThreads>, 4>(launch, stream);
    case CopyKind::kUnits16:
      return Launch<StagedRowsOfUnits<16, 8, kThreads>, 5>(launch, stream);
    case CopyKind::kUnits8:
      return Launch<StagedRowsOfUnits<8, 16, kThreads>, 6>(launch, stream);
    case CopyKind::kUnits4:
    case CopyKind::kUnits:
      return Launch<RowsOfWidth<uint4, 8, 4>, 4>(launch, stream);
    default:
      return Launch<RowsOfAnyKind<8>, 4>(launch, stream);
  }
}

cudaError_t LaunchErase(const WriteView& write, cudaStream_t stream) {
  if (write.key_count == 0) return cudaSuccess;
  WriteLaunch launch = LaunchOfWrite(write);
  const uint32_t blocks = SetTiles(launch, kEraseTileKeys, kThreads, 4);
  return LaunchKernel<EraseKernel>({blocks, kThreads, stream}, launch);
}

}  // namespace hps
