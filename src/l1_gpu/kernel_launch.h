// Launches of kernels that return their own error. The thread's last error, where <<<>>> leaves it,
// may be one that the caller of a look-up has left there. For .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace hps {

struct LaunchShape {
  uint32_t blocks;
  uint32_t threads;  // of a block
  cudaStream_t stream;
};

template <typename... Parameters>
cudaError_t LaunchKernel(const LaunchShape& shape, void (*kernel)(Parameters...),
                         const std::type_identity_t<Parameters>&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return cudaLaunchKernel(kernel, dim3(shape.blocks), dim3(shape.threads), pointers, 0,
                          shape.stream);
}

}  // namespace hps
