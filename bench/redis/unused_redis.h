// A part of level 2 on Redis for models whose rows are all in memory: what it costs that it is
// there.
#pragma once

#include "absl/status/statusor.h"
#include "tier/redis_tier.h"

namespace hps::bench {

// Its server does not exist: a table that is asked has no row. Errors: UNIMPLEMENTED in a build
// without Redis.
inline absl::StatusOr<RedisTier> MakeUnusedRedis() {
  return MakeRedisTier({.nodes = {"127.0.0.1:1"}});
}

}  // namespace hps::bench
