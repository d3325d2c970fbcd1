// Servers of Redis for LossyTierContract; each is started by the first test that uses it, and ends
// with the process.
#pragma once

#include <memory>
#include <string>

#include "l2_redis/test_redis.h"
#include "testing/contracts/lossy_contract.h"

namespace hps {

inline TestRedis& StandaloneRedis() {
  static TestRedis redis({});
  return redis;
}

inline TestRedis& ClusterOfRedis() {
  static TestRedis redis({.count = 3, .cluster = true});
  return redis;
}

// `tier_on`: the tier under test over servers with this configuration. Redis alone has no budgets
// and does not count the rows of a table.
inline LossyTierFactory RedisContractFactory(
    const std::string& name, TestRedis& (*servers)(),
    std::unique_ptr<LossyTier> (*tier_on)(const RedisConfig& config), bool counts = false,
    bool budgeted = false) {
  return {.name = name,
          .make = [servers, tier_on] { return tier_on(servers().Config()); },
          .refuses_little = budgeted,
          .counts = counts,
          .budgeted = budgeted};
}

}  // namespace hps
