// cuBLASLt, loaded at run time: a build with CUDA starts on machines that do not have it, too.
//
// Thread-safe.
#pragma once

#include <cublasLt.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

struct Cublas {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_operation = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_operation = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) set_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
};

// The library, loaded by the first call and kept until the process ends. Errors: UNAVAILABLE (it is
// not found; the message names the file and the package that has it).
absl::StatusOr<const Cublas*> TheCublas();

// `what` names the operation. Errors: RESOURCE_EXHAUSTED, INTERNAL.
absl::Status CublasStatus(cublasStatus_t status, const char* what);

}  // namespace hps
