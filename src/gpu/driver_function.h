// Functions of the driver, for what the runtime lacks. Nothing links the driver: a machine without
// a GPU has none.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>

namespace hps {

// Null without a driver, or if it lacks the function.
template <typename Function>
Function DriverFunction(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, CUDART_VERSION, cudaEnableDefault, &found);
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess
             ? std::bit_cast<Function>(function)
             : nullptr;
}

}  // namespace hps
