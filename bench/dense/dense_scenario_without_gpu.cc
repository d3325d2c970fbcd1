#include "bench/scenario.h"
#include "tier/device_cache_factory.h"

namespace hps::bench {

absl::StatusOr<std::vector<Result>> RunDenseScenario(const Options&) {
  return BuiltInDeviceCacheFactory().Support();
}

}  // namespace hps::bench
