// Dot products of all pairs of a sample's features (the interaction of DLRM).
//
// Bound: memory. Reads each feature once from where it lies, input or buffer, and writes the
// selected products: 13.8 KB and 1.4 KB per sample of 27 features of width 128. A concatenation
// with a batched GEMM would write and read the features once more. This is the kernel for float32
// and TF32; pairs_tensor.cu has the one for 16 bits.
#include <cuda_pipeline.h>

#include <algorithm>

#include "gpu/cuda_status.h"
#include "network/gpu/kernels/elements.cuh"
#include "network/gpu/kernels/pairs_tensor.h"
#include "network/gpu/kernels/steps.h"

namespace hps {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kBlocksMin = 6;  // of a multiprocessor, at once
constexpr uint32_t kTile = 4;       // a thread sums products of 4 x 4 features
constexpr uint32_t kSplits = 4;  // neighbouring threads that share a tile, each a part of the width

// Feature rows lie in shared memory with 4 elements between them, so that rows of a tile are in
// different banks. Rows and width are rounded up to multiples of 4 with zeros.
struct Layout {
  uint32_t rows;
  uint32_t stride;
  __host__ __device__ explicit Layout(const StepPairs& pairs)
      : rows((pairs.row_count + kTile - 1) / kTile * kTile),
        stride((pairs.width + 3) / 4 * 4 + 4) {}
};

// All copies are under way before the first one is waited for.
__device__ void CopyFeatures(const StepPairs& pairs, const RunArguments* arguments, uint32_t sample,
                             const Layout& layout, float* features) {
  const uint32_t row_vectors = layout.stride / 4;
  const uint32_t batch = arguments->batch;
#pragma unroll 4
  for (uint32_t v = threadIdx.x; v < layout.rows * row_vectors; v += kThreads) {
    const uint32_t r = v / row_vectors;
    const uint32_t c = (v - r * row_vectors) * 4;
    float* const to = features + r * layout.stride + c;
    const std::byte* from = nullptr;
    StepPairsRow row;
    if (r < pairs.row_count && c < pairs.width) {
      row = pairs.rows[r];
      from = row.data;
      if (row.input >= 0 && sample < batch) from = arguments->inputs[row.input];
    }
    const int64_t at = row.offset + sample * row.sample_stride + c;
    if (from == nullptr) {
      *reinterpret_cast<float4*>(to) = make_float4(0, 0, 0, 0);
    } else if (row.element == OnnxElement::kFloat32) {
      __pipeline_memcpy_async(to, reinterpret_cast<const float*>(from) + at, sizeof(float4));
    } else {
      *reinterpret_cast<float4*>(to) = LoadFloats(from, row.element, at);
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

// The same for rows that are not aligned.
__device__ void LoadFeatures(const StepPairs& pairs, const RunArguments* arguments, uint32_t sample,
                             const Layout& layout, float* features) {
  const uint32_t batch = arguments->batch;
  for (uint32_t e = threadIdx.x; e < layout.rows * layout.stride; e += kThreads) {
    const uint32_t r = e / layout.stride;
    const uint32_t c = e - r * layout.stride;
    float value = 0;
    if (r < pairs.row_count && c < pairs.width) {
      const StepPairsRow row = pairs.rows[r];
      const std::byte* from = row.data;
      if (row.input >= 0 && sample < batch) from = arguments->inputs[row.input];
      if (from != nullptr)
        value = LoadFloat(from, row.element, row.offset + sample * row.sample_stride + c);
    }
    features[e] = value;
  }
}

// Tile t of the triangle at and below the diagonal.
__device__ void TileOf(uint32_t t, uint32_t* row, uint32_t* column) {
  uint32_t r = 0;
  while (t > r) {
    t -= r + 1;
    ++r;
  }
  *row = r;
  *column = t;
}

template <bool kIsAligned>
__global__ void __launch_bounds__(kThreads, kBlocksMin)
    PairsKernel(StepPairs pairs, const RunArguments* arguments) {
  extern __shared__ float4 memory[];
  const Layout layout(pairs);
  float* const features = reinterpret_cast<float*>(memory);
  float* const products = features + layout.rows * layout.stride;
  const uint32_t sample = blockIdx.x;
  if constexpr (kIsAligned) {
    CopyFeatures(pairs, arguments, sample, layout, features);
  } else {
    LoadFeatures(pairs, arguments, sample, layout, features);
  }
  __syncthreads();
  const uint32_t side = layout.rows / kTile;
  const uint32_t work = side * (side + 1) / 2 * kSplits;
  const uint32_t vectors = layout.stride / 4 - 1;
  for (uint32_t w = threadIdx.x; w < (work + 31) / 32 * 32; w += kThreads) {
    const bool has_work = w < work;
    uint32_t tile_row = 0, tile_column = 0;
    if (has_work) TileOf(w / kSplits, &tile_row, &tile_column);
    const float* const a = features + tile_row * kTile * layout.stride;
    const float* const b = features + tile_column * kTile * layout.stride;
    float sums[kTile][kTile] = {};
    for (uint32_t v = w % kSplits; has_work && v < vectors; v += kSplits) {
      float4 left[kTile], right[kTile];
#pragma unroll
      for (uint32_t i = 0; i < kTile; ++i) {
        left[i] = *reinterpret_cast<const float4*>(a + i * layout.stride + v * 4);
        right[i] = *reinterpret_cast<const float4*>(b + i * layout.stride + v * 4);
      }
#pragma unroll
      for (uint32_t i = 0; i < kTile; ++i) {
#pragma unroll
        for (uint32_t j = 0; j < kTile; ++j) {
          sums[i][j] += left[i].x * right[j].x + left[i].y * right[j].y + left[i].z * right[j].z +
                        left[i].w * right[j].w;
        }
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kTile; ++i) {
#pragma unroll
      for (uint32_t j = 0; j < kTile; ++j) {
        float sum = sums[i][j];
        sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
        // Each of the sharing threads stores one row of the tile, and its mirror image.
        if (has_work && w % kSplits == i) {
          const uint32_t row = tile_row * kTile + i;
          const uint32_t column = tile_column * kTile + j;
          products[row * layout.rows + column] = sum;
          if (tile_row != tile_column) products[column * layout.rows + row] = sum;
        }
      }
    }
  }
  __syncthreads();
  const int64_t out = sample * pairs.output_stride;
  for (uint32_t e = threadIdx.x; e < pairs.selected_count; e += kThreads) {
    const auto pair = static_cast<uint32_t>(pairs.selected[e]);
    const uint32_t row = pair / pairs.row_count;
    StoreFloat(pairs.output.data, pairs.output.element, out + e,
               products[row * layout.rows + (pair - row * pairs.row_count)]);
  }
}

template <bool kIsAligned>
absl::Status Launch(const StepPairs& pairs, const RunArguments* arguments, cudaStream_t stream) {
  const Layout layout(pairs);
  const size_t bytes =
      (size_t{layout.rows} * layout.stride + size_t{layout.rows} * layout.rows) * sizeof(float);
  const cudaError_t error =
      cudaFuncSetAttribute(PairsKernel<kIsAligned>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(std::max<size_t>(bytes, 48 * 1024)));
  if (error != cudaSuccess) return CudaStatus(error, "shared memory of the pairs' kernel");
  PairsKernel<kIsAligned><<<pairs.samples, kThreads, bytes, stream>>>(pairs, arguments);
  return CudaStatus(cudaGetLastError(), "launch of the pairs' kernel");
}

}  // namespace

absl::Status LaunchPairs(const StepPairs& pairs, const RunArguments* arguments,
                         cudaStream_t stream) {
  if (FitsTensorCores(pairs)) return LaunchPairsOnTensorCores(pairs, arguments, stream);
  return pairs.is_aligned ? Launch<true>(pairs, arguments, stream)
                          : Launch<false>(pairs, arguments, stream);
}

}  // namespace hps
