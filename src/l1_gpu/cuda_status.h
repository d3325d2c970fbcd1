// The one place where the CUDA runtime's error codes become statuses.
//
// Device memory that can't be had is RESOURCE_EXHAUSTED, a missing driver or device UNAVAILABLE,
// everything else INTERNAL with the device's own text. Errors of kernels are sticky: from then on
// every call on the device answers INTERNAL. Others are forgotten by the runtime here, so that they
// don't show up at the next launch.
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

// `what` names the operation, for the message: "copy of the keys".
inline absl::Status CudaStatus(cudaError_t error, const char* what) {
  return error == cudaSuccess ? absl::OkStatus() : internal::CudaFailure(error, what);
}

// Of an allocation: the message says how many bytes were asked for.
absl::Status CudaMemoryStatus(cudaError_t error, const char* what, uint64_t bytes);

// 0 without a driver or a device.
int GpuDeviceCount();

// OK when the device exists; UNAVAILABLE in the driver's own words, or with the number of devices.
absl::Status CheckGpuDevice(int device);

// Makes a device the calling thread's current one, and the former one again when it dies: a thread
// of the caller may be at work on another device. One that has never chosen a device is left so.
//
// Costs a question where the device is the current one already, else two calls of the driver.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  // UNAVAILABLE where the device could not be made the current one: it is full, or another
  // process' alone. What follows would be done on the former one.
  absl::Status Check() const;

  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const int device_;
  bool is_pushed_ = false;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace hps
