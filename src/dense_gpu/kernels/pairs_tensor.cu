// Dot products of all pairs of a sample's features on tensor cores (pairs.cu has them in float32).
//
// Bound: memory, as for pairs.cu. A warp has a sample: it rounds the features to the type of the
// products while it copies them into shared memory, multiplies them with themselves in tiles of
// 16 x 16 (of the upper right tile it needs the mirror image only), and stores the selected
// products.
#include <mma.h>

#include <algorithm>
#include <type_traits>

#include "dense_gpu/kernels/elements.cuh"
#include "dense_gpu/kernels/pairs_tensor.h"
#include "l1_gpu/cuda_status.h"

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
constexpr uint32_t kLoads = 8;            // vectors that a lane has under way at once
constexpr uint32_t kBlocksMax = 132 * 6;  // more samples take turns

// What the tensor cores multiply, and how it lies in shared memory.
struct Half {
  using Stored = __half;
  using Multiplied = __half;
  static constexpr uint32_t kDepth = 16;
};
struct Bfloat16 {
  using Stored = __nv_bfloat16;
  using Multiplied = __nv_bfloat16;
  static constexpr uint32_t kDepth = 16;
};
struct Tf32 {
  using Stored = float;
  using Multiplied = wmma::precision::tf32;
  static constexpr uint32_t kDepth = 8;
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
  if constexpr (std::is_same_v<Type, Tf32>) {
    *reinterpret_cast<float4*>(to) =
        make_float4(wmma::__float_to_tf32(values.x), wmma::__float_to_tf32(values.y),
                    wmma::__float_to_tf32(values.z), wmma::__float_to_tf32(values.w));
  } else {
    constexpr OnnxElement kElement =
        std::is_same_v<Type, Half> ? OnnxElement::kFloat16 : OnnxElement::kBfloat16;
    *reinterpret_cast<uint2*>(to) =
        make_uint2(Pack(values.x, values.y, kElement), Pack(values.z, values.w, kElement));
  }
}

// Where the features of sample 0 are, and the steps to the next sample's.
struct FeatureRow {
  const std::byte* data;
  int64_t sample_stride;
  OnnxElement element;
};

template <typename Type>
__device__ void CopyFeatures(const StepPairs& pairs, const FeatureRow* rows, uint32_t sample,
                             typename Type::Stored* features) {
  const uint32_t lane = threadIdx.x % kLanes;
  const uint32_t row_vectors = pairs.width / 4;
  const uint32_t vectors = kRows * row_vectors;
  for (uint32_t begin = lane; begin < vectors; begin += kLanes * kLoads) {
    float4 values[kLoads];
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint32_t v = begin + i * kLanes;
      const uint32_t r = v / row_vectors;
      values[i] = make_float4(0, 0, 0, 0);
      if (r >= pairs.row_count) continue;
      const FeatureRow& row = rows[r];
      values[i] =
          LoadFloats(row.data, row.element, sample * row.sample_stride + (v - r * row_vectors) * 4);
    }
#pragma unroll
    for (uint32_t i = 0; i < kLoads; ++i) {
      const uint32_t v = begin + i * kLanes;
      const uint32_t r = v / row_vectors;
      if (v < vectors)
        StoreRounded<Type>(features + r * StrideOf<Type>(pairs.width) + (v - r * row_vectors) * 4,
                           values[i]);
    }
  }
}

// Products of features [0, 32) with each other, but for the upper right tile.
template <typename Type>
__device__ void Multiply(const typename Type::Stored* features, uint32_t width, float* products) {
  using Left = wmma::fragment<wmma::matrix_a, kTile, kTile, Type::kDepth, typename Type::Multiplied,
                              wmma::row_major>;
  using Right = wmma::fragment<wmma::matrix_b, kTile, kTile, Type::kDepth,
                               typename Type::Multiplied, wmma::col_major>;
  wmma::fragment<wmma::accumulator, kTile, kTile, Type::kDepth, float> sums[3];
  for (auto& sum : sums) wmma::fill_fragment(sum, 0.0F);
  const uint32_t stride = StrideOf<Type>(width);
  for (uint32_t k = 0; k < width; k += Type::kDepth) {
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

template <typename Type>
__global__ void __launch_bounds__(kThreads)
    TensorPairsKernel(StepPairs pairs, const RunArguments* arguments) {
  alignas(32) extern __shared__ std::byte memory[];
  __shared__ FeatureRow rows[kRows];
  const uint32_t batch = arguments->batch;
  if (threadIdx.x < pairs.row_count) {
    const StepPairsRow row = pairs.rows[threadIdx.x];
    const uint32_t bytes = row.element == OnnxElement::kFloat32 ? 4 : 2;
    const std::byte* const begin = row.input >= 0 ? arguments->inputs[row.input] : row.data;
    rows[threadIdx.x] = {begin + row.offset * bytes, row.sample_stride, row.element};
  }
  __syncthreads();
  const uint32_t warp = threadIdx.x / kLanes;
  std::byte* const own = memory + warp * WarpBytes<Type>(pairs.width);
  auto* const features = reinterpret_cast<typename Type::Stored*>(own);
  auto* const products = reinterpret_cast<float*>(own);
  for (uint32_t sample = blockIdx.x * kWarps + warp; sample < min(batch, pairs.samples);
       sample += gridDim.x * kWarps) {
    CopyFeatures<Type>(pairs, rows, sample, features);
    __syncwarp();
    Multiply<Type>(features, pairs.width, products);
    const int64_t out = sample * pairs.output_stride;
    for (uint32_t e = threadIdx.x % kLanes; e < pairs.selected_count; e += kLanes) {
      const auto pair = static_cast<uint32_t>(pairs.selected[e]);
      const uint32_t first = pair / pairs.row_count;
      const uint32_t second = pair - first * pairs.row_count;
      StoreFloat(pairs.output.data, pairs.output.element, out + e,
                 products[max(first, second) * kProductStride + min(first, second)]);
    }
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
  TensorPairsKernel<Type><<<blocks, kThreads, bytes, stream>>>(pairs, arguments);
  return CudaStatus(cudaGetLastError(), "launch of the pairs' kernel");
}

}  // namespace

bool FitsTensorCores(const StepPairs& pairs) {
  return pairs.math != DenseMath::kFloat32 && pairs.is_aligned && pairs.row_count <= kRows &&
         pairs.width % kTile == 0 && pairs.width <= kWidthMax;
}

absl::Status LaunchPairsOnTensorCores(const StepPairs& pairs, const RunArguments* arguments,
                                      cudaStream_t stream) {
  switch (pairs.math) {
    case DenseMath::kFloat16:
      return Launch<Half>(pairs, arguments, stream);
    case DenseMath::kBfloat16:
      return Launch<Bfloat16>(pairs, arguments, stream);
    default:
      return Launch<Tf32>(pairs, arguments, stream);
  }
}

}  // namespace hps
