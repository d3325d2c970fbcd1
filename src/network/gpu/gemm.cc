#include "network/gpu/gemm.h"

#include <bit>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "gpu/cuda_resources.h"
#include "gpu/cuda_status.h"

namespace hps {
namespace {

constexpr int kCandidates = 8;
// Smaller products take a few microseconds whatever the algorithm.
constexpr int64_t kProductsWorthTiming = int64_t{1} << 24;
constexpr const char* kTimingText = "timing of a matrix product";

cudaDataType_t TypeOf(OnnxElement element) {
  if (element == OnnxElement::kFloat16) return CUDA_R_16F;
  return element == OnnxElement::kBfloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

}  // namespace

absl::StatusOr<cublasLtMatmulAlgo_t> GemmChoices::Get(
    Step step, absl::FunctionRef<absl::StatusOr<cublasLtMatmulAlgo_t>()> choose) {
  MutexLock lock(mutex_);
  const auto found = chosen_.find(step);
  if (found != chosen_.end()) return found->second;
  HPS_ASSIGN_OR_RETURN(const cublasLtMatmulAlgo_t algorithm, choose());
  chosen_.emplace(step, algorithm);
  return algorithm;
}

Gemm::Gemm(const GemmPlace& place, const GemmShape& shape)
    : cublas_(place.cublas),
      handle_(place.handle),
      shape_(shape),
      workspace_(place.workspace),
      operation_(nullptr, cublas_->destroy_operation),
      left_(nullptr, cublas_->destroy_layout),
      right_(nullptr, cublas_->destroy_layout),
      out_(nullptr, cublas_->destroy_layout) {}

absl::StatusOr<Gemm> Gemm::Make(const GemmPlace& place, const GemmShape& shape,
                                GemmChoices::Step step) {
  Gemm gemm(place, shape);
  HPS_RETURN_IF_ERROR(gemm.SetUp());
  const auto choose = [&] { return gemm.ChooseAlgorithm(*place.set_up); };
  HPS_ASSIGN_OR_RETURN(gemm.algorithm_, place.choices->Get(step, choose));
  return gemm;
}

// A row-major matrix [rows, columns] is, column-major, [columns, rows].
absl::Status Gemm::SetLayout(Owned<cublasLtMatrixLayout_t>& layout, OnnxElement element,
                             const GemmMatrix& matrix, int64_t rows, int64_t columns) {
  constexpr const char* kWhat = "layout of a matrix";
  cublasLtMatrixLayout_t made = nullptr;
  HPS_RETURN_IF_ERROR(
      CublasStatus(cublas_->create_layout(&made, TypeOf(element), static_cast<uint64_t>(columns),
                                          static_cast<uint64_t>(rows), matrix.stride),
                   kWhat));
  layout.reset(made);
  if (shape_.count == 1) return absl::OkStatus();
  const auto count = static_cast<int32_t>(shape_.count);
  HPS_RETURN_IF_ERROR(CublasStatus(
      cublas_->set_layout(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)), kWhat));
  return CublasStatus(cublas_->set_layout(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                          &matrix.matrix_stride, sizeof(matrix.matrix_stride)),
                      kWhat);
}

absl::Status Gemm::SetUp() {
  cublasLtMatmulDesc_t operation = nullptr;
  HPS_RETURN_IF_ERROR(CublasStatus(
      cublas_->create_operation(&operation,
                                shape_.has_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                CUDA_R_32F),
      "matrix product"));
  operation_.reset(operation);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    return CublasStatus(cublas_->set_operation(operation, attribute, &value, sizeof(value)),
                        "attribute of a matrix product");
  };
  const cublasOperation_t left = shape_.b.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t right = shape_.a.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  HPS_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA, left));
  HPS_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB, right));
  if (shape_.bias != nullptr) {
    HPS_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, shape_.bias));
    HPS_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(shape_.out_element)));
  }
  const cublasLtEpilogue_t epilogue =
      shape_.bias != nullptr
          ? (shape_.has_relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
          : (shape_.has_relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT);
  HPS_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
  const GemmShape& s = shape_;
  HPS_RETURN_IF_ERROR(SetLayout(left_, s.element, s.b, s.b.is_transposed ? s.n : s.k,
                                s.b.is_transposed ? s.k : s.n));
  HPS_RETURN_IF_ERROR(SetLayout(right_, s.element, s.a, s.a.is_transposed ? s.k : s.m,
                                s.a.is_transposed ? s.m : s.k));
  return SetLayout(out_, s.out_element,
                   {.stride = s.out_stride, .matrix_stride = s.out_matrix_stride}, s.m, s.n);
}

absl::StatusOr<cublasLtMatmulAlgo_t> Gemm::ChooseAlgorithm(const SetUpStream& set_up) {
  cublasLtMatmulPreference_t made = nullptr;
  HPS_RETURN_IF_ERROR(CublasStatus(cublas_->create_preference(&made), "preference"));
  const Owned<cublasLtMatmulPreference_t> preference(made, cublas_->destroy_preference);
  HPS_RETURN_IF_ERROR(
      CublasStatus(cublas_->set_preference(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &workspace_.bytes, sizeof(workspace_.bytes)),
                   "preference"));
  const auto set_alignment = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                                 const std::byte* data) {
    constexpr uintptr_t kMax = 256;
    const uintptr_t address = std::bit_cast<uintptr_t>(data) | kMax;
    const auto bytes = static_cast<uint32_t>(address & (~address + 1));
    return CublasStatus(cublas_->set_preference(made, attribute, &bytes, sizeof(bytes)),
                        "preference");
  };
  HPS_RETURN_IF_ERROR(set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape_.b.data));
  HPS_RETURN_IF_ERROR(set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape_.a.data));
  HPS_RETURN_IF_ERROR(set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape_.out));
  HPS_RETURN_IF_ERROR(set_alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape_.out));
  cublasLtMatmulHeuristicResult_t candidates[kCandidates] = {};
  int found = 0;
  const cublasStatus_t status =
      cublas_->heuristic(handle_, operation_.get(), left_.get(), right_.get(), out_.get(),
                         out_.get(), made, kCandidates, candidates, &found);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
    return absl::InternalError(absl::StrCat(
        "cuBLASLt has no algorithm for a product of ", shape_.count, " x [", shape_.m, ", ",
        shape_.k, "] x [", shape_.k, ", ", shape_.n, "] (status ", static_cast<int>(status), ")"));
  }
  if (found == 1 || shape_.m * shape_.n * shape_.k * shape_.count < kProductsWorthTiming)
    return candidates[0].algo;
  return ChooseByTime(std::span(candidates, static_cast<size_t>(found)), set_up);
}

// The heuristic's first choice is often not the fastest one.
absl::StatusOr<cublasLtMatmulAlgo_t> Gemm::ChooseByTime(
    std::span<const cublasLtMatmulHeuristicResult_t> candidates, const SetUpStream& set_up) {
  constexpr int kRuns = 5;
  const cudaStream_t stream = set_up.get();
  HPS_ASSIGN_OR_RETURN(const CudaEvent begin, MakeEvent(cudaEventDefault));
  HPS_ASSIGN_OR_RETURN(const CudaEvent end, MakeEvent(cudaEventDefault));
  float best_ms = std::numeric_limits<float>::infinity();
  cublasLtMatmulAlgo_t best = candidates.front().algo;
  for (const cublasLtMatmulHeuristicResult_t& candidate : candidates) {
    if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
    algorithm_ = candidate.algo;
    if (!Run(stream).ok()) continue;  // warms up
    HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(begin.get(), stream), kTimingText));
    for (int i = 0; i < kRuns; ++i) HPS_RETURN_IF_ERROR(Run(stream));
    HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end.get(), stream), kTimingText));
    HPS_RETURN_IF_ERROR(set_up.Wait(kTimingText));
    float ms = 0;
    HPS_RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&ms, begin.get(), end.get()), kTimingText));
    if (ms >= best_ms) continue;
    best_ms = ms;
    best = candidate.algo;
  }
  return best;
}

absl::Status Gemm::Run(cudaStream_t stream) const {
  const float one = 1, zero = 0;
  return CublasStatus(
      cublas_->matmul(handle_, operation_.get(), &one, shape_.b.data, left_.get(), shape_.a.data,
                      right_.get(), &zero, shape_.out, out_.get(), shape_.out, out_.get(),
                      &algorithm_, workspace_.data, workspace_.bytes, stream),
      "a matrix product");
}

}  // namespace hps
