#include "l1_gpu/cuda_status.h"

#include "absl/strings/str_cat.h"

namespace hps {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status internal::CudaFailure(cudaError_t error, const char* what) {
  (void)
      cudaGetLastError();  // a sticky error comes back by itself, any other one is dealt with here
  return absl::Status(CodeOf(error),
                      absl::StrCat("gpu cache: ", what, ": ", cudaGetErrorString(error)));
}

absl::Status CudaMemoryStatus(cudaError_t error, const char* what, uint64_t bytes) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  return absl::Status(CodeOf(error), absl::StrCat("gpu cache: ", bytes, " bytes of ", what, ": ",
                                                  cudaGetErrorString(error)));
}

int GpuDeviceCount() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

absl::Status CheckGpuDevice(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) return internal::CudaFailure(error, "looking for devices");
  if (device >= 0 && device < count) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("gpu cache: device ", device, " is not there, this machine has ", count));
}

// Whoever makes something on the device checks. Of a device that was chosen before, errors show at
// the first operation, which can tell them to somebody.
DeviceScope::DeviceScope(int device) : device_(device) {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == device) return;
  former_ = current;
  error_ = cudaSetDevice(device);
  if (error_ != cudaSuccess) (void)cudaGetLastError();
}

absl::Status DeviceScope::Check() const {
  if (error_ == cudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("gpu cache: device ", device_, " can't be used: ", cudaGetErrorString(error_)));
}

DeviceScope::~DeviceScope() {
  if (former_ >= 0) (void)cudaSetDevice(former_);
}

}  // namespace hps
