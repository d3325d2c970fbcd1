// What a build without CUDA says when it is asked for a device.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tier/device_cache_factory.h"

namespace hps {
namespace {

constexpr const char* kSentence =
    "this build does not have support for GPUs: `make gpu` makes one that has";

class NoGpu final : public DeviceCacheFactory {
 public:
  absl::Status Support() const override { return absl::UnimplementedError(kSentence); }
  absl::StatusOr<std::vector<int>> Devices() const override { return Support(); }
  absl::StatusOr<std::string> DeviceName(int) const override { return Support(); }
  absl::StatusOr<DeviceMemory> Memory(int) const override { return Support(); }
  absl::StatusOr<std::unique_ptr<DeviceCache>> Make(
      const DeviceCacheOptions& options) const override {
    return absl::UnimplementedError(absl::StrCat("device ", options.device, ": ", kSentence));
  }
};

}  // namespace

const DeviceCacheFactory& BuiltInDeviceCacheFactory() {
  static const NoGpu factory;
  return factory;
}

}  // namespace hps
