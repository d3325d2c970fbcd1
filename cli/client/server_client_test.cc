#include "cli/client/server_client.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "testing/test_directory.h"

namespace hps::cli {
namespace {

// The rest is tested with a server in tests/server/apply_test.py.
TEST(ServerClientTest, RefusesWhatIsNoServerOrNoToken) {
  EXPECT_EQ(ServerClient::Open({.url = "ftp://x"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      ServerClient::Open({.url = "http://h:1", .token_file = "/no/such/file"}).status().code(),
      absl::StatusCode::kNotFound);
  EXPECT_EQ(ServerClient::Open({.url = "http://h:1", .token_file = "/dev/null"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ServerClientTest, RefusesASecretThatAllMayRead) {
  const TestDirectory directory;
  const std::string file = directory.Write("secret", "secret\n");
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  EXPECT_EQ(ServerClient::Open({.url = "http://h:1", .token_file = file}).status(),
            absl::FailedPreconditionError(
                "--token-file: the mode of '" + file +
                "', 0644, lets every user read it; run `chmod o-r` on it, or mount it with the "
                "mode 0440"));
  EXPECT_EQ(ServerClient::Open({.url = "https://h:1", .tls = {.key = file}}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  EXPECT_EQ(ServerClient::Open({.url = "http://h:1", .token_file = file}).status(),
            absl::OkStatus());
}

}  // namespace
}  // namespace hps::cli
