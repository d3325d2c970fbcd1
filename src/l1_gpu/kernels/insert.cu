#include "gpu/kernel_launch.h"
#include "l1_gpu/kernels/insert_kernel.cuh"
#include "l1_gpu/kernels/kernels.h"

namespace hps {
namespace {

template <typename Rows, int kBlocks>
cudaError_t Launch(WriteLaunch launch, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const uint32_t blocks = SetTiles(launch, Rows::kTileKeys, kThreads, kBlocks);
  return LaunchKernel<InsertKernel<Rows, kThreads, kBlocks>>({blocks, kThreads, stream}, launch);
}

}  // namespace

cudaError_t LaunchInsertIfAbsent(const WriteView& write, uint32_t dumped_slab_count,
                                 cudaStream_t stream) {
  if (write.key_count == 0) return cudaSuccess;
  WriteLaunch launch = LaunchOfWrite(write);
  launch.dumped_slab_count = dumped_slab_count;
  switch (launch.kind) {
    case CopyKind::kUnits32:
      return Launch<RowsOfUnits<32, 8, 4>, 3>(launch, stream);
    case CopyKind::kUnits16:
      return Launch<RowsOfUnits<16, 8, 4>, 3>(launch, stream);
    case CopyKind::kUnits8:
      return Launch<RowsOfUnits<8, 16, 4>, 3>(launch, stream);
    case CopyKind::kUnits4:
    case CopyKind::kUnits:
      return Launch<RowsOfWidth<uint4, 8, 4>, 3>(launch, stream);
    default:
      return Launch<RowsOfAnyKind<8>, 3>(launch, stream);
  }
}

}  // namespace hps
