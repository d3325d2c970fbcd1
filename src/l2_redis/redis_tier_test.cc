#include "tier/redis_tier.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/macros.h"
#include "l2_redis/test_redis_contract.h"

namespace hps {
namespace {

std::unique_ptr<LossyTier> TierOn(const RedisConfig& config) {
  auto made = MakeRedisTier(config);
  HPS_CHECK(made.ok());
  return std::move(made->tier);
}

// By TLS, with a certificate of the client, too.
TestRedis& StandaloneByTls() {
  static TestRedis redis({.settings = {"tls-auth-clients=yes"}, .tls = true});
  return redis;
}

std::unique_ptr<LossyTier> TierByTls() {
  RedisConfig config = StandaloneByTls().Config();
  config.tls_certificate = StandaloneByTls().Certificate("client.pem");
  config.tls_key = StandaloneByTls().Certificate("client.key");
  return TierOn(config);
}

INSTANTIATE_TEST_SUITE_P(Redis, LossyTierContract,
                         ::testing::Values(RedisContractFactory("standalone", StandaloneRedis,
                                                                TierOn),
                                           RedisContractFactory("cluster", ClusterOfRedis, TierOn),
                                           LossyTierFactory{.name = "tls",
                                                            .make = TierByTls,
                                                            .refuses_little = false,
                                                            .counts = false,
                                                            .budgeted = false}),
                         LossyTierName);

}  // namespace
}  // namespace hps
