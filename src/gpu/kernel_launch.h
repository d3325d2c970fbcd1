// Kernel launches that return their own error. The thread's last error, which <<<>>> sets, may stem
// from the caller of a lookup.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace hps {

struct LaunchShape {
  uint32_t blocks;
  uint32_t threads;  // per block
  cudaStream_t stream;
  uint32_t rows = 1;  // grid rows of `blocks` each
  // The percentage given to shared memory of the memory that it divides with the multiprocessor's
  // own cache; 0: the driver chooses.
  uint32_t shared_percent = 0;

  dim3 grid() const { return dim3(blocks, rows); }
};

// For kernels that usually run concurrently. A kernel with another split of that memory starts on a
// multiprocessor only when the running kernels have left it: an update would wait for a gap between
// queries. Has room for a block of an update, which takes up to 33 KiB with the system's share: of
// 164 KiB (sm_80) as of 228 (sm_90, sm_100).
inline constexpr uint32_t kSharedPercentConcurrent = 21;

// Whether all devices can start a kernel's blocks before the previous kernel ends.
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

// A kernel that is launched by LaunchKernel or LaunchKernelAhead anywhere in the program. It is in
// a list before main() runs, so that LoadKernels loads all of them.
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

// Loads all of them on the current device. Otherwise the driver loads each at its first launch,
// which takes device memory and may wait for all running work of the device.
cudaError_t LoadKernels();

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

// The kernel is passed again to deduce the types of its parameters.
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

// As LaunchKernel, for a kernel that calls WaitForKernelBefore: if the device supports it, its
// blocks start while the stream's previous kernel ends.
template <auto kKernel, typename... Arguments>
cudaError_t LaunchKernelAhead(const LaunchShape& shape, const Arguments&... arguments) {
  return internal::LaunchTyped<kKernel>(shape, true, kKernel, arguments...);
}

}  // namespace hps
