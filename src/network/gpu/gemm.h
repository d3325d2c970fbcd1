// A matrix product of cuBLASLt with its algorithm. It is chosen when the network's first session is
// made: of those that cuBLASLt proposes, the fastest by a measurement; `out` is overwritten. Sums
// are float32.
//
// Row-major on the outside: out [m, n] = a [m, k] x b, + bias [n], then ReLU; b is [k, n] or, as
// weights lie, [n, k]. cuBLASLt sees the transposed product, column-major.
//
// Not thread-safe. Run may be captured into a graph.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "network/gpu/cublas.h"
#include "network/gpu/set_up_stream.h"
#include "network/onnx/graph.h"

namespace hps {

struct GemmMatrix {
  const std::byte* data = nullptr;
  int64_t stride = 0;          // elements from row to row, of the matrix as it lies
  int64_t matrix_stride = 0;   // from matrix to matrix of a batch
  bool is_transposed = false;  // it lies as its transpose
};

struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t count = 1;  // matrices of a batch
  GemmMatrix a;
  GemmMatrix b;
  OnnxElement element = OnnxElement::kFloat32;      // of a and b; or float16, bfloat16
  OnnxElement out_element = OnnxElement::kFloat32;  // of out and bias; or as `element`
  bool has_tf32 = false;                            // a and b of float32 are rounded to TF32
  std::byte* out = nullptr;
  int64_t out_stride = 0;
  int64_t out_matrix_stride = 0;
  const std::byte* bias = nullptr;
  bool has_relu = false;
};

struct GemmWorkspace {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// The algorithms of a network's products. All of its sessions take the same ones, so they compute
// bitwise the same, and only the first one takes the time of the measurements.
//
// Thread-safe.
class GemmChoices {
 public:
  // Samples of the batch, and the step in it. All sessions have the same steps, of the same shapes,
  // and their buffers have the same alignment.
  using Step = std::pair<uint32_t, size_t>;

  // The algorithm of this step; `choose` is called if there is none yet. Errors: those of
  // `choose`.
  absl::StatusOr<cublasLtMatmulAlgo_t> Get(
      Step step, absl::FunctionRef<absl::StatusOr<cublasLtMatmulAlgo_t>()> choose);

 private:
  Mutex mutex_;  // held during a measurement, which another one would disturb
  std::map<Step, cublasLtMatmulAlgo_t> chosen_ HPS_GUARDED_BY(mutex_);
};

// Where the products of a session are made. What it points to outlives Gemm::Make.
struct GemmPlace {
  const Cublas* cublas = nullptr;
  cublasLtHandle_t handle = nullptr;  // of the current device
  GemmWorkspace workspace;
  GemmChoices* choices = nullptr;
  const SetUpStream* set_up = nullptr;
};

class Gemm {
 public:
  // Errors: INTERNAL (cuBLASLt has no algorithm for the shape), DEADLINE_EXCEEDED (the device did
  // not finish a measurement).
  static absl::StatusOr<Gemm> Make(const GemmPlace& place, const GemmShape& shape,
                                   GemmChoices::Step step);

  absl::Status Run(cudaStream_t stream) const;

 private:
  template <typename Opaque>
  using Owned = std::unique_ptr<std::remove_pointer_t<Opaque>, cublasStatus_t (*)(Opaque)>;

  Gemm(const GemmPlace& place, const GemmShape& shape);
  absl::Status SetUp();
  absl::Status SetLayout(Owned<cublasLtMatrixLayout_t>& layout, OnnxElement element,
                         const GemmMatrix& matrix, int64_t rows, int64_t columns);
  absl::StatusOr<cublasLtMatmulAlgo_t> ChooseAlgorithm(const SetUpStream& set_up);
  absl::StatusOr<cublasLtMatmulAlgo_t> ChooseByTime(
      std::span<const cublasLtMatmulHeuristicResult_t> candidates, const SetUpStream& set_up);

  const Cublas* cublas_;
  cublasLtHandle_t handle_;
  GemmShape shape_;
  GemmWorkspace workspace_;
  Owned<cublasLtMatmulDesc_t> operation_;
  Owned<cublasLtMatrixLayout_t> left_;   // b
  Owned<cublasLtMatrixLayout_t> right_;  // a
  Owned<cublasLtMatrixLayout_t> out_;
  cublasLtMatmulAlgo_t algorithm_{};
};

}  // namespace hps
