#include "bench/scenario.h"
#include "tier/device_cache_factory.h"

namespace hps::bench {

absl::StatusOr<std::vector<Result>> RunL1Scenario(const Options&) {
  return BuiltInDeviceCacheFactory().Support();
}

}  // namespace hps::bench
