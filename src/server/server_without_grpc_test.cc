// hps::Server as a build without gRPC (CMake option HPS_GRPC) puts it together.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "hps/server.h"
#include "hps/store.h"
#include "import/generate.h"

namespace hps::server {
namespace {

class ServerWithoutGrpcTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "hps_server_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    config_.store.path = directory_ + "/store";
    config_.l2.huge_pages = false;
    config_.server.http = "127.0.0.1:0";
    config_.server.metrics = "";
    const std::string tables = directory_ + "/m";
    ASSERT_TRUE(GenerateTables({.out = tables, .tables = 1, .rows = 10, .dim = 4}).ok());
    ASSERT_TRUE(ImportTables(config_, {.name = "m", .from = tables}).ok());
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  Config config_;
};

TEST_F(ServerWithoutGrpcTest, ServesTheRestWhenNobodyAskedForIt) {
  const auto server = Server::Start(config_);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_NE((*server)->addresses().http, "");
  EXPECT_EQ((*server)->addresses().grpc, "");
  EXPECT_TRUE((*server)->Drain().ok());
}

TEST_F(ServerWithoutGrpcTest, RefusesAnAddressThatIsNotTheDefault) {
  config_.server.grpc = "127.0.0.1:0";
  const absl::Status status = Server::Start(config_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_NE(std::string(status.message()).find("-DHPS_GRPC=ON"), std::string::npos) << status;
}

TEST_F(ServerWithoutGrpcTest, RefusesToServeNothing) {
  config_.server.http = config_.server.grpc = "";
  config_.server.metrics = "127.0.0.1:0";
  const absl::Status status = Server::Start(config_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

}  // namespace
}  // namespace hps::server
