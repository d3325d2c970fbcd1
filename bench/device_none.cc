#include "bench/device.h"
#include "tier/device_cache_factory.h"

namespace hps::bench {

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(int) {
  const absl::Status support = BuiltInDeviceCacheFactory().Support();
  if (!support.ok()) return support;
  return absl::InternalError("bench: this build has a device cache but no device to measure it on");
}

}  // namespace hps::bench
