// Launches of kernels that return their own error. The thread's last error, where <<<>>> leaves it,
// may be one that the caller of a lookup has left there.
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
  // How much of the memory that shared memory and the multiprocessor's own cache divide is for the
  // former; 0: the driver chooses.
  uint32_t shared_percent = 0;

  dim3 grid() const { return dim3(blocks, rows); }
};

// For kernels that are launched beside each other all the time. A kernel that divides that memory
// in another way than the one that is there begins on a multiprocessor only when it has left: an
// update beside queries would wait for a gap between them. Has room for a block of an update, which
// takes up to 33 KiB with what the system keeps: of 164 KiB (sm_80) as of 228 (sm_90, sm_100).
inline constexpr uint32_t kSharedPercentConcurrent = 21;

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

// A kernel that LaunchKernel or LaunchKernelAhead is called for anywhere in the program: in a list
// from before main() on, so that none is forgotten where all are to be loaded.
class LaunchedKernel {
 public:
  explicit LaunchedKernel(const void* kernel) : kernel_(kernel), next_(first_) { first_ = this; }
  LaunchedKernel(const LaunchedKernel&) = delete;
  LaunchedKernel& operator=(const LaunchedKernel&) = delete;

  const void* kernel() const { return kernel_; }
  const LaunchedKernel* next() const { return next_; }
  static const LaunchedKernel* first() { return first_; }

 private:
  const void* const kernel_;
  const LaunchedKernel* const next_;
  static inline const LaunchedKernel* first_ = nullptr;
};

namespace internal {

template <auto kKernel>
struct LaunchedKernelOf {
  static inline const LaunchedKernel entry{reinterpret_cast<const void*>(kKernel)};
};

inline cudaError_t Launch(const LaunchShape& shape, const void* kernel, void** arguments,
                          bool ahead) {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid();
  config.blockDim = dim3(shape.threads);
  config.stream = shape.stream;
  config.attrs = attributes;
  if (ahead && DevicesLaunchAhead()) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.shared_percent != 0) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attribute.val.sharedMemCarveout = shape.shared_percent;
  }
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

// The kernel is given once more for the types of its parameters.
template <auto kKernel, typename... Parameters>
cudaError_t LaunchTyped(const LaunchShape& shape, bool ahead, void (*)(Parameters...),
                        const std::type_identity_t<Parameters>&... arguments) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return Launch(shape, LaunchedKernelOf<kKernel>::entry.kernel(), pointers, ahead);
}

}  // namespace internal

template <auto kKernel, typename... Arguments>
cudaError_t LaunchKernel(const LaunchShape& shape, const Arguments&... arguments) {
  return internal::LaunchTyped<kKernel>(shape, false, kKernel, arguments...);
}

// As LaunchKernel, for a kernel that calls WaitForKernelBefore: on devices that can do so its
// blocks take their places while the kernel before it on the stream comes to its end.
template <auto kKernel, typename... Arguments>
cudaError_t LaunchKernelAhead(const LaunchShape& shape, const Arguments&... arguments) {
  return internal::LaunchTyped<kKernel>(shape, true, kKernel, arguments...);
}

}  // namespace hps
