#include "bench/scenario.h"

namespace hps::bench {

absl::StatusOr<std::vector<Result>> RunRedisScenario(const Options& /*options*/) {
  return absl::UnimplementedError("this build has no Redis client (HPS_REDIS)");
}

}  // namespace hps::bench
