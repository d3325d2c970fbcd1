// The only place where error codes of the CUDA runtime become statuses.
//
// Insufficient device memory is RESOURCE_EXHAUSTED, a missing driver or device UNAVAILABLE,
// everything else INTERNAL with the device's error text. Kernel errors are sticky: every later call
// returns INTERNAL, on all devices of the process. Other errors are cleared in the runtime here, so
// that the next launch does not report them.
//
// Thread-safe. Success costs one comparison.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

namespace hps {

namespace internal {
absl::Status CudaFailure(cudaError_t error, const char* what);
}  // namespace internal

// `what` names the operation in the message: "copy of the keys".
inline absl::Status CudaStatus(cudaError_t error, const char* what) {
  return error == cudaSuccess ? absl::OkStatus() : internal::CudaFailure(error, what);
}

// For an allocation: the message says how many bytes were requested.
absl::Status CudaMemoryStatus(cudaError_t error, const char* what, uint64_t bytes);

// 0 without a driver or a device.
int GpuDeviceCount();

// OK if the device exists; otherwise UNAVAILABLE, in the driver's own words or with the number of
// devices.
absl::Status CheckGpuDevice(int device);

// Makes a device the calling thread's current one; the destructor restores the previous one,
// because the caller's thread may be working on another device. If the thread never chose a device,
// it has none afterwards either.
//
// Costs one query if the device is already current, otherwise two driver calls.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  // UNAVAILABLE if the device could not be made current: it is full, or used exclusively by another
  // process. Later work would then run on the previous device.
  absl::Status Check() const;

  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const int device_;
  bool is_pushed_ = false;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace hps
