#include "server/listen_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hps::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace hps::server
