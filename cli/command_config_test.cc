#include "cli/command_config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace hps::cli {
namespace {

// Catches: `hps inspect` that takes memory of every GPU of the machine.
TEST(CommandConfigTest, ACommandUsesNoLevelAboveTheStore) {
  const auto config = ConfigOfCommand({.store = "store", .config = ""});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->store.path, "store");
  EXPECT_EQ(config->l2.kind, L2Kind::kNone);
  EXPECT_FALSE(config->l1.devices_auto);
  EXPECT_EQ(config->l1.devices, std::vector<int>());
}

TEST(CommandConfigTest, AServerHasAllLevelsAndItsOptionsCount) {
  ServeArguments arguments;
  arguments.store.store = "store";
  arguments.http = "127.0.0.1:1";
  const auto config = ConfigOfServer(arguments);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->l2.kind, L2Kind::kMemory);
  EXPECT_TRUE(config->l1.devices_auto);
  EXPECT_EQ(config->server.http, "127.0.0.1:1");
  EXPECT_EQ(config->origin.at("server.http"), "--http");
  EXPECT_EQ(config->server.grpc, Config().server.grpc);
  arguments.http = "nowhere";
  EXPECT_EQ(ConfigOfServer(arguments).status().code(), absl::StatusCode::kInvalidArgument);
}

// Catches: a contradiction that is only found out when the server starts, with exit status 1.
TEST(CommandConfigTest, AServerIsCheckedBeforeItStarts) {
  const std::string file = testing::TempDir() + "/hps_command_config_control.toml";
  std::ofstream(file) << "[server.security]\nrepository_control = true\n";
  ASSERT_EQ(unsetenv("HPS_TOKEN"), 0);
  ServeArguments arguments;
  arguments.store.config = file;
  const absl::Status status = ConfigOfServer(arguments).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("needs a token"), std::string::npos) << status;
  arguments.print_config = true;
  EXPECT_TRUE(ConfigOfServer(arguments).ok());
  std::filesystem::remove(file);
}

TEST(CommandConfigTest, AServerServesHttpOrGrpc) {
  const std::string file = testing::TempDir() + "/hps_command_config_test.toml";
  std::ofstream(file) << "[server]\nhttp = \"\"\n";
  ServeArguments arguments;
  arguments.store.config = file;
  EXPECT_TRUE(ConfigOfServer(arguments).ok());
  arguments.grpc = "";
  const absl::Status status = ConfigOfServer(arguments).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "server.http (" + file +
                                  ":2) and server.grpc (--grpc) are both \"\" (off): there is "
                                  "nothing to serve");
  arguments.http = "";
  EXPECT_EQ(ConfigOfServer(arguments).status().message(),
            "server.http (--http) and server.grpc (--grpc) are both \"\" (off): there is nothing "
            "to serve");
  arguments.http = "127.0.0.1:1";
  EXPECT_TRUE(ConfigOfServer(arguments).ok());
  std::filesystem::remove(file);
}

TEST(CommandConfigTest, AFileThatIsNotThereIsAnError) {
  EXPECT_EQ(ConfigOfCommand({.store = "", .config = "/none.toml"}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hps::cli
