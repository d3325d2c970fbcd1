#include "tier/redis_tier.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/macros.h"
#include "l2_redis/test_redis.h"
#include "testing/contracts/lossy_contract.h"

namespace hps {
namespace {

std::unique_ptr<LossyTier> TierOn(const RedisConfig& config) {
  auto made = MakeRedisTier(config);
  HPS_CHECK(made.ok());
  return std::move(made->tier);
}

TestRedis& Standalone() {
  static TestRedis redis({});
  return redis;
}

TestRedis& Cluster() {
  static TestRedis redis({.count = 3, .cluster = true});
  return redis;
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

LossyTierFactory Factory(const std::string& name, TestRedis& (*servers)()) {
  return {.name = name,
          .make = [servers] { return TierOn(servers().Config()); },
          .refuses_little = false};
}

INSTANTIATE_TEST_SUITE_P(
    Redis, LossyTierContract,
    ::testing::Values(Factory("standalone", Standalone), Factory("cluster", Cluster),
                      LossyTierFactory{.name = "tls", .make = TierByTls, .refuses_little = false}),
    LossyTierName);

}  // namespace
}  // namespace hps
