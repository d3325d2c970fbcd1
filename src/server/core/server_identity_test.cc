#include "server/core/server_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace hps::server {
namespace {

TEST(ServerIdentityTest, VersionIsThatOfARelease) {
  EXPECT_THAT(std::string(ServerVersion()), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

// Loading takes no unload_dependents, statistics and binary data are served; nothing is twice.
TEST(ServerIdentityTest, ExtensionsAreThoseThatAreServed) {
  const std::set<std::string_view> listed(kServerExtensions.begin(), kServerExtensions.end());
  EXPECT_EQ(listed.size(), kServerExtensions.size());
  EXPECT_EQ(listed.count("model_repository(unload_dependents)"), 0U);
  EXPECT_EQ(listed.count("binary_tensor_data"), 1U);
}

}  // namespace
}  // namespace hps::server
