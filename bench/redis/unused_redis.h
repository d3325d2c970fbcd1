// A part of level 2 on Redis for models whose rows are all in memory: what it costs that it is
// there.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/macros.h"
#include "serving/live_table.h"
#include "tier/redis_tier.h"

namespace hps::bench {

// Its server does not exist: a table that is asked has no row. Errors: UNIMPLEMENTED in a build
// without Redis.
inline absl::StatusOr<RedisTier> MakeUnusedRedis() {
  return MakeRedisTier({.nodes = {"127.0.0.1:1"}});
}

// Adds the part on `redis`, if there is a tier, behind those that the table has.
inline absl::Status AddUnusedPart(const RedisTier& redis, const TableSpec& spec,
                                  LiveTable::Parts* parts) {
  if (redis.tier == nullptr) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<LossyTable> table, redis.tier->OpenTable(spec, 1, 0));
  parts->l2.push_back({.table = std::move(table), .tier = redis.tier.get()});
  return absl::OkStatus();
}

}  // namespace hps::bench
