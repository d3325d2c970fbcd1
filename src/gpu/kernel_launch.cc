#include "gpu/kernel_launch.h"

namespace hps {

cudaError_t LoadKernels() {
  for (const LaunchedKernel* kernel = LaunchedKernel::first(); kernel != nullptr;
       kernel = kernel->next()) {
    // Loads the kernel: some attributes are known only of loaded kernels.
    cudaFuncAttributes attributes = {};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel->kernel());
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace hps
