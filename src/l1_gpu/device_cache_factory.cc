#include "tier/device_cache_factory.h"

#include <cuda_runtime.h>

#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "l1_gpu/gpu_cache.h"

namespace hps {
namespace {

class GpuFactory final : public DeviceCacheFactory {
 public:
  absl::Status Support() const override { return absl::OkStatus(); }

  absl::StatusOr<std::vector<int>> Devices() const override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
      return absl::UnavailableError(absl::StrCat("no GPU: ", cudaGetErrorString(error)));
    if (count == 0) return absl::UnavailableError("no GPU: the driver reports no device");
    std::vector<int> devices(static_cast<size_t>(count));
    std::iota(devices.begin(), devices.end(), 0);
    return devices;
  }

  absl::StatusOr<std::string> DeviceName(int device) const override {
    cudaDeviceProp properties{};
    const cudaError_t error = cudaGetDeviceProperties(&properties, device);
    if (error == cudaSuccess) return std::string(properties.name);
    return absl::UnavailableError(absl::StrCat("device ", device, ": ", cudaGetErrorString(error)));
  }

  absl::StatusOr<DeviceMemory> Memory(int device) const override {
    HPS_RETURN_IF_ERROR(CheckGpuDevice(device));
    const DeviceScope scope(device);
    HPS_RETURN_IF_ERROR(scope.Check());
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    HPS_RETURN_IF_ERROR(
        CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for a device's memory"));
    return DeviceMemory{free_bytes, total_bytes};
  }

  absl::StatusOr<std::unique_ptr<DeviceCache>> Make(
      const DeviceCacheOptions& options) const override {
    return MakeGpuCache(options);
  }
};

}  // namespace

const DeviceCacheFactory& BuiltInDeviceCacheFactory() {
  static const GpuFactory factory;
  return factory;
}

}  // namespace hps
