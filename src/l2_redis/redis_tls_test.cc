// Connections by TLS to a real server, and what is said where the certificates do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "l2_redis/command_writer.h"
#include "l2_redis/exchange.h"
#include "l2_redis/redis_connection.h"
#include "l2_redis/test_proxy.h"
#include "l2_redis/test_redis.h"
#include "l2_redis/test_watched.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

// Makes the server show another certificate to the connections that follow.
void ShowCertificate(TestRedis& redis, const std::string& name) {
  redis.Ask(0, {"CONFIG", "SET", "tls-cert-file", redis.Certificate(name + ".pem"), "tls-key-file",
                redis.Certificate(name + ".key")});
}

// What a new connection to the first server comes to.
absl::Status Connect(const RedisConfig& config) {
  RedisCredentials credentials;
  credentials.tls_server_name = config.tls_server_name;
  if (config.tls) {
    credentials.tls =
        TlsFiles{.ca = config.tls_ca, .certificate = config.tls_certificate, .key = config.tls_key};
  }
  RedisNode node(*ParseRedisAddress(config.nodes[0]), credentials, 1);
  std::string command;
  AppendCommand({"PING"}, command);
  return AskRedis(node, command, DeadlineAfter(RealClock(), config.timeout)).status();
}

// The level holds nothing, and says that its server is down, and why.
void ExpectDown(const RedisConfig& config, absl::StatusCode code, const std::string& why) {
  const absl::Status connected = Connect(config);
  EXPECT_EQ(connected.code(), code) << connected;
  EXPECT_THAT(std::string(connected.message()), HasSubstr(why));
  Watched table(config);
  EXPECT_EQ(table.Insert(), 0u);
  EXPECT_EQ(table.Fetch(), 0u);
  const RemoteLevelStatistics statistics = table.statistics();
  EXPECT_TRUE(statistics.nodes[0].bypassed);
  EXPECT_GT(statistics.failures_by_code[static_cast<size_t>(code)], 0u);
}

TEST(RedisTlsTest, TheServersCertificateIsVerified) {
  TestRedis redis({.tls = true});
  RedisConfig config = redis.Config();
  {
    Watched table(config);
    EXPECT_TRUE(table.Recovers());
  }
  config.tls_ca = redis.Certificate("other_ca.pem");
  ExpectDown(config, absl::StatusCode::kUnauthenticated, "self-signed certificate");
  config.tls_ca = "";  // the system's
  ExpectDown(config, absl::StatusCode::kUnauthenticated, "certificate is not trusted");
}

TEST(RedisTlsTest, AnExpiredCertificate) {
  TestRedis redis({.tls = true});
  ShowCertificate(redis, "expired");
  ExpectDown(redis.Config(), absl::StatusCode::kUnauthenticated, "certificate has expired");
}

TEST(RedisTlsTest, ACertificateForAnotherHost) {
  TestRedis redis({.tls = true});
  ShowCertificate(redis, "other_name");
  RedisConfig config = redis.Config();
  ExpectDown(config, absl::StatusCode::kUnauthenticated, "IP address mismatch");
  config.nodes = {"localhost" + config.nodes[0].substr(config.nodes[0].rfind(':'))};
  ExpectDown(config, absl::StatusCode::kUnauthenticated, "hostname mismatch");
  config.tls_server_name = "other.example";
  EXPECT_TRUE(Watched(config).Recovers());
}

TEST(RedisTlsTest, AServerThatWantsACertificateOfTheClient) {
  TestRedis redis({.settings = {"tls-auth-clients=yes"}, .tls = true});
  RedisConfig config = redis.Config();
  // Its reason, "certificate required", is lost if it resets the connection.
  ExpectDown(config, absl::StatusCode::kUnavailable, "");
  config.tls_certificate = redis.Certificate("client.pem");
  config.tls_key = redis.Certificate("client.key");
  EXPECT_TRUE(Watched(config).Recovers());
}

TEST(RedisTlsTest, OnlyOneSideSpeaksTls) {
  TestRedis by_tls({.tls = true});
  RedisConfig config = by_tls.Config();
  config.tls = false;
  ExpectDown(config, absl::StatusCode::kUnavailable, "");  // closed, or reset
  TestRedis plain({});
  config.tls = true;
  config.nodes = plain.addresses();
  ExpectDown(Quick(config), absl::StatusCode::kDeadlineExceeded, "does the server speak TLS?");
}

TEST(RedisTlsTest, ACluster) {
  TestRedis redis({.count = 3, .cluster = true, .tls = true});
  Watched table(redis.Config());
  ASSERT_TRUE(table.Recovers());
  redis.Kill(1);
  table.Update();
  EXPECT_GT(table.Fetch(), kKeys / 3);
  redis.Start(1);
  EXPECT_TRUE(table.Recovers());
}

// A connection that is cut, or says nothing more, in the handshake or later.
TEST(RedisTlsTest, AnEncryptedReplyCutAtManyPlaces) {
  TestRedis redis({.tls = true});
  TestProxy proxy(redis.addresses()[0]);
  RedisConfig config = Quick(redis.Config());
  config.nodes = {proxy.address()};
  Watched table(config);
  for (const size_t cut : {1, 100, 700, 1500, 5000, 50'000}) {
    proxy.Set({.cut_after = cut});
    table.Fetch();
    table.Update();
    proxy.Set({.stall_after = cut});
    table.Fetch();
    proxy.Set({});
    EXPECT_TRUE(table.Recovers()) << cut;
  }
  proxy.Set({.instead = std::string("\x17\x03\x03\x00\x05hello", 10)});
  EXPECT_EQ(table.Fetch(), 0u);
  proxy.Set({});
  EXPECT_TRUE(table.Recovers());
}

TEST(RedisTlsTest, FilesThatCannotBeUsedAreNamed) {
  TestDirectory directory;
  const std::string none = directory.path() + "/none.pem";
  const std::string garbage = directory.path() + "/garbage.pem";
  std::ofstream(garbage) << "no certificate\n";
  RedisConfig config;
  config.tls_ca = none;
  EXPECT_TRUE(CheckRedisTlsFiles(config).ok());  // without TLS no file is read
  config.tls = true;
  const auto expect = [&config](const std::string& setting, const std::string& file) {
    const absl::Status status = CheckRedisTlsFiles(config);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("l2.redis." + setting + " = " + file));
  };
  expect("tls_ca", none);
  config.tls_ca = directory.path();
  expect("tls_ca", directory.path());
  config.tls_ca = garbage;
  expect("tls_ca", garbage);
  config.tls_ca = "";
  config.tls_certificate = garbage;
  config.tls_key = garbage;
  expect("tls_certificate", garbage);
  TestRedis redis({.tls = true});
  config.tls_certificate = redis.Certificate("client.pem");
  config.tls_key = redis.Certificate("server.key");
  expect("tls_key", config.tls_key);
  config.tls_key = redis.Certificate("client.key");
  EXPECT_TRUE(CheckRedisTlsFiles(config).ok());
}

}  // namespace
}  // namespace hps
