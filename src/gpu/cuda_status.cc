#include "gpu/cuda_status.h"

#include <cuda.h>

#include <array>
#include <atomic>

#include "absl/strings/str_cat.h"
#include "gpu/driver_function.h"

namespace hps {
namespace {

// They change the current device and restore the previous one without initializing it. For a thread
// that never chose a device the previous one would be device 0, on which cudaSetDevice creates a
// context of hundreds of megabytes. Null without a driver.
struct Driver {
  decltype(&cuDevicePrimaryCtxRetain) retain = nullptr;
  decltype(&cuCtxPushCurrent) push = nullptr;
  decltype(&cuCtxPopCurrent) pop = nullptr;
};

const Driver& TheDriver() {
  static const Driver driver = {
      .retain = DriverFunction<decltype(Driver::retain)>("cuDevicePrimaryCtxRetain"),
      .push = DriverFunction<decltype(Driver::push)>("cuCtxPushCurrent"),
      .pop = DriverFunction<decltype(Driver::pop)>("cuCtxPopCurrent")};
  return driver;
}

constexpr int kDevicesMax = 1024;

// The device's primary context, which the runtime uses too. Retained until the process ends.
CUresult PrimaryContext(const Driver& driver, int device, CUcontext* context) {
  static std::array<std::atomic<CUcontext>, kDevicesMax> contexts{};
  if (device < 0 || device >= kDevicesMax) return CUDA_ERROR_INVALID_DEVICE;
  std::atomic<CUcontext>& kept = contexts[static_cast<size_t>(device)];
  *context = kept.load(std::memory_order_acquire);
  if (*context != nullptr) return CUDA_SUCCESS;
  const CUresult error = driver.retain(context, device);
  // Concurrent calls get the same context.
  if (error == CUDA_SUCCESS) kept.store(*context, std::memory_order_release);
  return error;
}

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

// Whether code failed on a device. The driver then refuses all devices to the process, also those
// that did nothing wrong (seen with driver 580 and two H100).
bool EndsCuda(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

// Driver errors have the runtime's numbers.
cudaError_t Push(int device) {
  const Driver& driver = TheDriver();
  if (driver.retain == nullptr || driver.push == nullptr || driver.pop == nullptr)
    return cudaErrorInsufficientDriver;
  CUcontext context = nullptr;
  CUresult error = PrimaryContext(driver, device, &context);
  if (error == CUDA_SUCCESS) error = driver.push(context);
  return static_cast<cudaError_t>(error);
}

}  // namespace

absl::Status internal::CudaFailure(cudaError_t error, const char* what) {
  (void)cudaGetLastError();  // a sticky error persists; any other error is handled here
  return absl::Status(
      CodeOf(error), absl::StrCat("gpu: ", what, ": ", cudaGetErrorString(error),
                                  EndsCuda(error) ? "; this process can use no GPU any more" : ""));
}

absl::Status CudaMemoryStatus(cudaError_t error, const char* what, uint64_t bytes) {
  if (error == cudaSuccess) return absl::OkStatus();
  (void)cudaGetLastError();
  return absl::Status(CodeOf(error), absl::StrCat("gpu: ", bytes, " bytes of ", what, ": ",
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
  return absl::UnavailableError(absl::StrCat(
      "gpu: device ", device, " does not exist; this machine has ", count, " devices"));
}

// Factories on the device check the result. On a device that was selected before, an error appears
// at the first operation, which can report it.
DeviceScope::DeviceScope(int device) : device_(device) {
  int current = -1;
  error_ = cudaGetDevice(&current);
  if (error_ != cudaSuccess) {
    (void)cudaGetLastError();
  } else if (current != device) {
    error_ = Push(device);
    is_pushed_ = error_ == cudaSuccess;
  }
}

absl::Status DeviceScope::Check() const {
  if (error_ == cudaSuccess) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("gpu: device ", device_, " can't be used: ", cudaGetErrorString(error_)));
}

DeviceScope::~DeviceScope() {
  CUcontext own = nullptr;
  if (is_pushed_) (void)TheDriver().pop(&own);
}

}  // namespace hps
