// Dot products of all pairs of a sample's features in 16 bits, on tensor cores. In TF32 they would
// take longer than pairs.cu takes in float32: the features fill more of the shared memory.
//
// Bound: memory, as for pairs.cu. A warp has a sample: it rounds the features to the type of the
// products while it copies them into shared memory, multiplies them with themselves in tiles of
// 16 x 16 (of the upper right tile it needs the mirror image only), and stores the selected
// products.
#include "network/gpu/kernels/pairs_tensor.h"

#include <mma.h>

#include <algorithm>
#include <bit>

#include "gpu/cuda_status.h"
#include "network/gpu/kernels/elements.cuh"

namespace hps {
namespace {

namespace wmma = nvcuda::wmma;

constexpr uint32_t kLanes = 32;
constexpr uint32_t kWarps = 4;
constexpr uint32_t kThreads = kWarps * kLanes;
constexpr uint32_t kRows = 32;  // of features, with zeros at the end
constexpr uint32_t kTile = 16;
constexpr uint32_t kWidthMax = 256;
constexpr uint32_t kProductStride = kRows + 4;
constexpr uint32_t kSelectedMax = kRows * kRows;
constexpr uint32_t kLoads = 8;            // vectors that a lane has under way at once
constexpr uint32_t kBlocksMax = 132 * 6;  // more samples take turns

// What the tensor cores multiply, and how it lies in shared memory.
struct Half {
  using Stored = __half;
  static constexpr OnnxElement kElement = OnnxElement::kFloat16;
};
struct Bfloat16 {
  using Stored = __nv_bfloat16;
  static constexpr OnnxElement kElement = OnnxElement::kBfloat16;
};

// Rows lie in shared memory with 16 bytes between them: rows of a tile are in different banks.
template <typename Type>
__host__ __device__ constexpr uint32_t StrideOf(uint32_t width) {
  return width + 16 / sizeof(typename Type::Stored);
}

// Of one warp: features, and in the same place their products.
template <typename Type>
__host__ __device__ constexpr uint32_t WarpBytes(uint32_t width) {
  const uint32_t features = kRows * StrideOf<Type>(width) * sizeof(typename Type::Stored);
  const uint32_t products = kRows * kProductStride * sizeof(float);
  return features > products ? features : products;
}

template <typename Type>
__device__ void StoreRounded(typename Type::Stored* to, const float4& values) {
  *reinterpret_cast<uint2*>(to) = make_uint2(Pack(values.x, values.y, Type::kElement),
                                             Pack(values.z, values.w, Type::kElement));
}

// Where the features of sample 0 are, and the steps to the next sample's.
struct FeatureRow {
  const std::byte* data;
  int64_t sample_stride;
  OnnxElement element;
};

// `shift`: of the vectors of a row, a power of two.
template <typename Type>
__device__ void CopyFeatures(const StepPairs& pairs, const FeatureRow* rows, uint32_t sample,
                             uint32_t shift, typename Type::Stored* features) {
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t vectors = kRows << shift;
  const uint32_t stride = StrideOf<Type>(pairs.width);
  for (uint32_t begin = lane; begin < vectors; begin += kLanes * kLoads) {
    float4 values[kLoads];
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint32_t v = begin + i * kLanes;
      const uint32_t r = v >> shift;
      values[i] = make_float4(0, 0, 0, 0);
      if (r >= pairs.row_count) continue;
      const FeatureRow& row = rows[r];
      values[i] =
          LoadFloats(row.data, row.element, sample * row.sample_stride + ((v - (r << shift)) << 2));
    }
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint32_t v = begin + i * kLanes;
      const uint32_t r = v >> shift;
      if (v < vectors)
        StoreRounded<Type>(features + r * stride + ((v - (r << shift)) << 2), values[i]);
    }
  }
}

// Products of features [0, 32) with each other, but for the upper right tile.
template <typename Type>
__device__ void Multiply(const typename Type::Stored* features, uint32_t width, float* products) {
  using Left =
      wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, typename Type::Stored, wmma::row_major>;
  using Right =
      wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, typename Type::Stored, wmma::col_major>;
  wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float> sums[3];
  for (auto& sum : sums) wmma::fill_fragment(sum, 0.0F);
  const uint32_t stride = StrideOf<Type>(width);
  for (uint32_t k = 0; k < width; k += kTile) {
    Left upper, lower;
    Right left, right;
    wmma::load_matrix_sync(upper, features + k, stride);
    wmma::load_matrix_sync(lower, features + kTile * stride + k, stride);
    wmma::load_matrix_sync(left, features + k, stride);
    wmma::load_matrix_sync(right, features + kTile * stride + k, stride);
    wmma::mma_sync(sums[0], upper, left, sums[0]);
    wmma::mma_sync(sums[1], lower, left, sums[1]);
    wmma::mma_sync(sums[2], lower, right, sums[2]);
  }
  __syncwarp();  // all lanes have read the features, whose place the products take
  wmma::store_matrix_sync(products, sums[0], kProductStride, wmma::mem_row_major);
  wmma::store_matrix_sync(products + kTile * kProductStride, sums[1], kProductStride,
                          wmma::mem_row_major);
  wmma::store_matrix_sync(products + kTile * kProductStride + kTile, sums[2], kProductStride,
                          wmma::mem_row_major);
  __syncwarp();
}

// Stores the selected products of a sample; `positions`: where they lie.
__device__ void StoreSelected(const StepPairs& pairs, const uint16_t* positions, uint32_t sample,
                              const float* products) {
  const StepMemory& to = pairs.output;
  const uint32_t lane = threadIdx.x % kLanes;
  const int64_t out = sample * pairs.output_stride;
  uint32_t stored = 0;
  // Two of 16 bits at once, where they begin at a word.
  if (to.element != OnnxElement::kFloat32 && pairs.output_stride % 2 == 0 &&
      reinterpret_cast<uintptr_t>(to.data) % sizeof(uint32_t) == 0) {
    auto* const words = reinterpret_cast<uint32_t*>(to.data) + out / 2;
    const uint32_t word_count = pairs.selected_count / 2;
#pragma unroll 4
    for (uint32_t w = lane; w < word_count; w += kLanes)
      words[w] = Pack(products[positions[2 * w]], products[positions[2 * w + 1]], to.element);
    stored = 2 * word_count;
  }
#pragma unroll 4
  for (uint32_t e = stored + lane; e < pairs.selected_count; e += kLanes)
    StoreFloat(to.data, to.element, out + e, products[positions[e]]);
}

template <typename Type>
__global__ void __launch_bounds__(kThreads)
    TensorPairsKernel(StepPairs pairs, uint32_t shift, const RunArguments* arguments) {
  alignas(32) extern __shared__ std::byte memory[];
  __shared__ FeatureRow rows[kRows];
  __shared__ uint16_t positions[kSelectedMax];
  const uint32_t batch = arguments->batch;
  if (threadIdx.x < pairs.row_count) {
    const StepPairsRow row = pairs.rows[threadIdx.x];
    const uint32_t bytes = row.element == OnnxElement::kFloat32 ? 4 : 2;
    const std::byte* const begin = row.input >= 0 ? arguments->inputs[row.input] : row.data;
    rows[threadIdx.x] = {begin + row.offset * bytes, row.sample_stride, row.element};
  }
  for (uint32_t e = threadIdx.x; e < pairs.selected_count; e += kThreads) {
    const auto pair = static_cast<uint32_t>(pairs.selected[e]);
    const uint32_t first = pair / pairs.row_count;
    const uint32_t second = pair - first * pairs.row_count;
    positions[e] = static_cast<uint16_t>(max(first, second) * kProductStride + min(first, second));
  }
  __syncthreads();
  const uint32_t warp = threadIdx.x / kLanes;
  std::byte* const own = memory + warp * WarpBytes<Type>(pairs.width);
  auto* const features = reinterpret_cast<typename Type::Stored*>(own);
  auto* const products = reinterpret_cast<float*>(own);
  for (uint32_t sample = blockIdx.x * kWarps + warp; sample < min(batch, pairs.samples);
       sample += gridDim.x * kWarps) {
    CopyFeatures<Type>(pairs, rows, sample, shift, features);
    __syncwarp();
    Multiply<Type>(features, pairs.width, products);
    StoreSelected(pairs, positions, sample, products);
    __syncwarp();  // before the next features take the products' place
  }
}

template <typename Type>
absl::Status Launch(const StepPairs& pairs, const RunArguments* arguments, cudaStream_t stream) {
  const uint32_t bytes = kWarps * WarpBytes<Type>(pairs.width);
  const cudaError_t error =
      cudaFuncSetAttribute(TensorPairsKernel<Type>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(std::max<uint32_t>(bytes, 48 * 1024)));
  if (error != cudaSuccess) return CudaStatus(error, "shared memory of the pairs' kernel");
  const uint32_t blocks = std::min((pairs.samples + kWarps - 1) / kWarps, kBlocksMax);
  const auto shift = static_cast<uint32_t>(std::countr_zero(pairs.width / 4));
  TensorPairsKernel<Type><<<blocks, kThreads, bytes, stream>>>(pairs, shift, arguments);
  return CudaStatus(cudaGetLastError(), "launch of the pairs' kernel");
}

}  // namespace

bool FitsTensorCores(const StepPairs& pairs) {
  const bool has_16_bits = pairs.math == DenseMath::kFloat16 || pairs.math == DenseMath::kBfloat16;
  return has_16_bits && pairs.is_aligned && pairs.row_count <= kRows &&
         pairs.selected_count <= kSelectedMax && std::has_single_bit(pairs.width) &&
         pairs.width >= kTile && pairs.width <= kWidthMax;
}

absl::Status LaunchPairsOnTensorCores(const StepPairs& pairs, const RunArguments* arguments,
                                      cudaStream_t stream) {
  return pairs.math == DenseMath::kFloat16 ? Launch<Half>(pairs, arguments, stream)
                                           : Launch<Bfloat16>(pairs, arguments, stream);
}

}  // namespace hps
