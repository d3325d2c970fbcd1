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
  uint32_t rows = 1;  // of `blocks` each

  dim3 grid() const { return dim3(blocks, rows); }
};

// Whether all devices can have a kernel's blocks take their places before the one before it ends.
inline bool DevicesLaunchAhead() {
  static const bool all = [] {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) return false;
    for (int device = 0; device < count; ++device) {
      int major = 0;
      if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) !=
              cudaSuccess ||
          major < 9) {
        return false;
      }
    }
    return true;
  }();
  return all;
}

template <typename... Parameters>
cudaError_t LaunchKernel(const LaunchShape& shape, void (*kernel)(Parameters...),
                         const std::type_identity_t<Parameters>&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return cudaLaunchKernel(kernel, shape.grid(), dim3(shape.threads), pointers, 0, shape.stream);
}

// As LaunchKernel, for a kernel that calls WaitForKernelBefore: on devices that can do so its
// blocks take their places while the kernel before it on the stream comes to its end.
template <typename... Parameters>
cudaError_t LaunchKernelAhead(const LaunchShape& shape, void (*kernel)(Parameters...),
                              const std::type_identity_t<Parameters>&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  cudaLaunchAttribute ahead = {};
  ahead.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  ahead.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid();
  config.blockDim = dim3(shape.threads);
  config.stream = shape.stream;
  config.attrs = &ahead;
  config.numAttrs = DevicesLaunchAhead() ? 1 : 0;
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers);
}

}  // namespace hps
