#include "network/gpu/cublas.h"

#include <dlfcn.h>

#include <bit>
#include <string>

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

constexpr const char* kLibrary = "libcublasLt.so.13";

struct Loaded {
  Cublas cublas;
  std::string error;
};

Loaded Load() {
  Loaded loaded;
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    loaded.error = absl::StrCat("dense networks on the GPU need ", kLibrary, " (", why,
                                "): install the CUDA toolkit or PyPI's nvidia-cublas, and put its "
                                "folder into LD_LIBRARY_PATH");
    return loaded;
  }
  const auto find = [&](auto& function, const char* name) {
    void* const symbol = dlsym(library, name);
    if (symbol == nullptr) loaded.error = absl::StrCat(kLibrary, " has no function ", name);
    function = std::bit_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  Cublas& cublas = loaded.cublas;
  find(cublas.create, "cublasLtCreate");
  find(cublas.destroy, "cublasLtDestroy");
  find(cublas.matmul, "cublasLtMatmul");
  find(cublas.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(cublas.create_operation, "cublasLtMatmulDescCreate");
  find(cublas.destroy_operation, "cublasLtMatmulDescDestroy");
  find(cublas.set_operation, "cublasLtMatmulDescSetAttribute");
  find(cublas.create_layout, "cublasLtMatrixLayoutCreate");
  find(cublas.destroy_layout, "cublasLtMatrixLayoutDestroy");
  find(cublas.set_layout, "cublasLtMatrixLayoutSetAttribute");
  find(cublas.create_preference, "cublasLtMatmulPreferenceCreate");
  find(cublas.destroy_preference, "cublasLtMatmulPreferenceDestroy");
  find(cublas.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  return loaded;
}

}  // namespace

absl::StatusOr<const Cublas*> TheCublas() {
  static const Loaded loaded = Load();
  if (!loaded.error.empty()) return absl::UnavailableError(loaded.error);
  return &loaded.cublas;
}

absl::Status CublasStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": cuBLASLt's status is ", static_cast<int>(status));
  return status == CUBLAS_STATUS_ALLOC_FAILED ? absl::ResourceExhaustedError(text)
                                              : absl::InternalError(text);
}

}  // namespace hps
