#include "tier/device_cache_factory.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

class GpuFactory final : public DeviceCacheFactory {
 public:
  absl::StatusOr<std::vector<int>> Devices() const override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess)
      return absl::UnavailableError(absl::StrCat("no GPU: ", cudaGetErrorString(error)));
    if (count == 0) return absl::UnavailableError("no GPU: the driver knows no device");
    std::vector<int> devices(static_cast<size_t>(count));
    std::iota(devices.begin(), devices.end(), 0);
    return devices;
  }

  absl::StatusOr<std::unique_ptr<DeviceCache>> Make(
      const DeviceCacheOptions& options) const override {
    HPS_ASSIGN_OR_RETURN(const std::vector<int> devices, Devices());
    if (std::find(devices.begin(), devices.end(), options.device) == devices.end()) {
      return absl::UnavailableError(
          absl::StrCat("device ", options.device, ": this machine has ", devices.size()));
    }
    return absl::UnimplementedError(absl::StrCat("device ", options.device, ": no cache yet"));
  }
};

}  // namespace

const DeviceCacheFactory& BuiltInDeviceCacheFactory() {
  static const GpuFactory factory;
  return factory;
}

}  // namespace hps
