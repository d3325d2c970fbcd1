#include "server/listen_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hps::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(ListenPolicyTest, WarnsOfWhatOthersReach) {
  ServerConfig config;
  EXPECT_THAT(ListenWarnings(config, false), IsEmpty());
  config.http = "0.0.0.0:8000";
  EXPECT_THAT(ListenWarnings(config, false),
              ElementsAre(HasSubstr("without TLS and without a token")));
  EXPECT_THAT(ListenWarnings(config, true), ElementsAre(HasSubstr("without TLS (")));
  config.tls_certificate = "c.pem";
  EXPECT_THAT(ListenWarnings(config, false), ElementsAre(HasSubstr("without a token")));
  EXPECT_THAT(ListenWarnings(config, true), IsEmpty());
  config.http = "";
  config.grpc = "[::]:8001";
  EXPECT_THAT(ListenWarnings(config, true), IsEmpty());
}

TEST(ListenPolicyTest, ControlNeedsAToken) {
  ServerConfig config;
  EXPECT_TRUE(CheckControl(config, false).ok());
  config.repository_control = true;
  EXPECT_EQ(CheckControl(config, false).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckControl(config, true).ok());
}

TEST(ListenPolicyTest, SomethingIsServed) {
  Config config;
  EXPECT_TRUE(CheckAddresses(config).ok());
  config.server.http = "";
  config.origin["server.http"] = "hps.toml:2";
  EXPECT_TRUE(CheckAddresses(config).ok());
  config.server.grpc = "";
  EXPECT_EQ(CheckAddresses(config),
            absl::InvalidArgumentError("server.http (hps.toml:2) and server.grpc (set in code) are "
                                       "both \"\" (off): there is nothing to serve"));
}

TEST(ListenPolicyTest, SecretsAreNotForEverybody) {
  const std::string file = testing::TempDir() + "/listen_policy_secret." + std::to_string(getpid());
  std::ofstream(file) << "secret\n";
  for (const auto& [setting, member] :
       {std::pair("token_file", &ServerConfig::token_file),
        std::pair("admin_token_file", &ServerConfig::admin_token_file),
        std::pair("tls_key", &ServerConfig::tls_key)}) {
    ServerConfig config;
    EXPECT_EQ(CheckSecrets(config), absl::OkStatus());
    config.*member = file;
    ASSERT_EQ(chmod(file.c_str(), 0440), 0);
    EXPECT_EQ(CheckSecrets(config), absl::OkStatus());
    ASSERT_EQ(chmod(file.c_str(), 0444), 0);
    const absl::Status refused = CheckSecrets(config);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()),
                StartsWith(absl::StrCat("[server.security] ", setting, ": ")));
    config.secrets_readable_by_all = true;
    EXPECT_EQ(CheckSecrets(config), absl::OkStatus());
  }
  unlink(file.c_str());
}

TEST(ListenPolicyTest, WarnsOfACertificateThatIsNotValidForLong) {
  constexpr int64_t kBegin = 1'700'000'000;  // 2023-11-14 22:13:20
  constexpr int64_t kEnd = 1'800'000'000;    // 2027-01-15 08:00:00
  constexpr int64_t kDay = 24 * 60 * 60;
  ServerStatistics statistics;
  statistics.certificate_not_before = kBegin;
  statistics.certificate_not_after = kEnd;
  const auto at = [&](int64_t now) { return CertificateWarning(statistics, now); };
  EXPECT_EQ(at(kBegin), "");
  EXPECT_EQ(at(kEnd - 30 * kDay), "");
  EXPECT_EQ(at(kEnd - 30 * kDay + 1),
            "the certificate of [server.security] tls_certificate expires in less than 30 days, at "
            "2027-01-15 08:00:00 UTC; renew it and send SIGHUP");
  EXPECT_THAT(at(kEnd - 1), HasSubstr("expires in less than 30 days"));
  EXPECT_EQ(at(kEnd),
            "the certificate of [server.security] tls_certificate expired at 2027-01-15 08:00:00 "
            "UTC; renew it and send SIGHUP");
  EXPECT_EQ(at(kBegin - 1),
            "the certificate of [server.security] tls_certificate is not valid before 2023-11-14 "
            "22:13:20 UTC; check it and the clock of this machine");
}

TEST(ListenPolicyTest, ConnectionsLeaveFilesForTheStoreAndTheMetrics) {
  const ServerConfig config;  // three listeners with 6 files each
  const auto shares = [&config](uint64_t open, uint64_t most) {
    const auto shared = ShareFiles(config, open, most);
    return shared.ok() ? std::pair(shared->each_max, shared->metrics_max) : std::pair(0u, 0u);
  };
  EXPECT_EQ(shares(26, 64), std::pair(2u, 8u));  // the fewest that are of use
  EXPECT_EQ(shares(20, 64), std::pair(5u, 8u));  // 64 - 20 - 18 - 16 for two protocols
  EXPECT_EQ(shares(100, 1024), std::pair(339u, 32u));
  EXPECT_EQ(shares(2000, 8192), std::pair(2063u, 32u));  // at most a quarter is kept back
  EXPECT_EQ(shares(2000, 65536), std::pair(4096u, 32u));
  EXPECT_EQ(shares(100, RLIM_INFINITY).first, 4096u);
  for (const auto& [open, most] :
       {std::pair(27u, 64u), std::pair(64u, 64u), std::pair(100u, 64u)}) {
    EXPECT_EQ(ShareFiles(config, open, most).status(),
              absl::ResourceExhaustedError(absl::StrCat(
                  "server: this process may open 64 files and has ", open,
                  " open: too few are left for connections; raise the limit (LimitNOFILE, ulimit "
                  "-n)")));
  }
  ServerConfig one;
  one.grpc = "";
  EXPECT_EQ(ShareFiles(one, 20, 64)->each_max, 16u);  // it shares with no other
  one.connections_max = 2;
  EXPECT_EQ(ShareFiles(one, 20, 64)->each_max, 2u);
  EXPECT_EQ(ShareFiles(one, 20, 64)->metrics_max, 2u);
}

}  // namespace
}  // namespace hps::server
