#include "cli/client/server_client.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace hps::cli
