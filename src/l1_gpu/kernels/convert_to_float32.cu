// Converts rows of 16-bit floating point numbers to float32 in place.
//
// Bound: memory. Reads each row and writes twice its bytes, which are mostly still in L2.
#include <algorithm>

#include "gpu/device_memory.cuh"
#include "gpu/kernel_launch.h"
#include "l1_gpu/kernels/kernels.h"
#include "types/row_convert.h"

namespace hps {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarpsOfBlock = kThreads / kWarpLanes;
constexpr size_t kPartsInLaunch = 16;
constexpr uint32_t kInFlight = 4;  // elements of a lane

struct ConvertPart {
  RowsToConvert rows;
  uint32_t block_begin;
};

struct ConvertLaunch {
  ConvertPart parts[kPartsInLaunch];
  uint32_t part_count;
};

// These accept addresses of any alignment.
__device__ inline uint16_t LoadElement(const std::byte* from) {
  if (reinterpret_cast<uintptr_t>(from) % 2 == 0) return *reinterpret_cast<const uint16_t*>(from);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(from);
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}
__device__ inline void StoreElement(std::byte* to, uint32_t value) {
  if (reinterpret_cast<uintptr_t>(to) % 4 == 0) {
    *reinterpret_cast<uint32_t*>(to) = value;
    return;
  }
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(value >> 8 * i);
}

__device__ inline uint32_t ToFloat32Bits(Dtype dtype, uint16_t element) {
  return dtype == Dtype::kFloat16 ? Float16ToFloat32Bits(element) : Bfloat16ToFloat32Bits(element);
}

// For all lanes of a warp. Converts from the last element to the first, so that each write lies
// behind all elements not yet read.
__device__ inline void ConvertRow(std::byte* row, const RowsToConvert& rows) {
  constexpr uint32_t kStepElements = kInFlight * kWarpLanes;
  const uint32_t lane = threadIdx.x % kWarpLanes;
  for (uint32_t step = (rows.element_count + kStepElements - 1) / kStepElements; step-- > 0;) {
    uint16_t elements[kInFlight];
#pragma unroll
    for (uint32_t i = 0; i < kInFlight; ++i) {
      const uint32_t at = step * kStepElements + i * kWarpLanes + lane;
      if (at < rows.element_count) elements[i] = LoadElement(row + 2 * at);
    }
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < kInFlight; ++i) {
      const uint32_t at = step * kStepElements + i * kWarpLanes + lane;
      if (at < rows.element_count)
        StoreElement(row + 4 * at, ToFloat32Bits(rows.dtype, elements[i]));
    }
    __syncwarp();
  }
}

__global__ void __launch_bounds__(kThreads)
    ConvertKernel(const __grid_constant__ ConvertLaunch launch) {
  uint32_t number = 0;
  while (number + 1 < launch.part_count && launch.parts[number + 1].block_begin <= blockIdx.x)
    ++number;
  const ConvertPart& part = launch.parts[number];
  const uint32_t row = (blockIdx.x - part.block_begin) * kWarpsOfBlock + threadIdx.x / kWarpLanes;
  if (row < part.rows.row_count)
    ConvertRow(part.rows.rows + row * part.rows.row_stride_bytes, part.rows);
}

cudaError_t Launch(std::span<const RowsToConvert> parts, cudaStream_t stream) {
  ConvertLaunch launch = {};
  uint32_t blocks = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    launch.parts[i] = {parts[i], blocks};
    blocks += (parts[i].row_count + kWarpsOfBlock - 1) / kWarpsOfBlock;
  }
  launch.part_count = static_cast<uint32_t>(parts.size());
  if (blocks == 0) return cudaSuccess;
  return LaunchKernel<ConvertKernel>({blocks, kThreads, stream}, launch);
}

}  // namespace

cudaError_t LaunchConvertToFloat32(std::span<const RowsToConvert> parts, cudaStream_t stream) {
  for (size_t first = 0; first < parts.size(); first += kPartsInLaunch) {
    const cudaError_t error =
        Launch(parts.subspan(first, std::min(kPartsInLaunch, parts.size() - first)), stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace hps
