#include "node/update_stream.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "hps/store.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

TEST(UpdateStreamTest, AStoreWithoutBrokersHasNone) {
  const TestDirectory directory;
  Config config;
  config.store.path = directory.Path("store");
  const auto store = Store::Open(config, OpenMode::kCreate);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_FALSE((*store)->Statistics().updates.stream.enabled);
}

TEST(UpdateStreamTest, BrokersThatAreAwayAreNoError) {
  const TestDirectory directory;
  Config config;
  config.store.path = directory.Path("store");
  config.update.brokers = {"127.0.0.1:1"};
  config.update.ready_timeout = std::chrono::milliseconds(1);
  const auto store = Store::Open(config, OpenMode::kCreate);
  if (absl::IsUnimplemented(store.status())) GTEST_SKIP() << "a build without Kafka";
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->Statistics().updates.stream.enabled);
}

TEST(UpdateStreamTest, SettingsThatTheClientRefuses) {
  const TestDirectory directory;
  Config config;
  config.store.path = directory.Path("store");
  config.update.brokers = {"127.0.0.1:1"};
  config.update.kafka = {{"no.such.setting", "1"}};
  const absl::Status status = Store::Open(config, OpenMode::kCreate).status();
  if (absl::IsUnimplemented(status)) GTEST_SKIP() << "a build without Kafka";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
}

TEST(UpdateStreamTest, SecretsAreNotForEverybody) {
  const TestDirectory directory;
  const std::string secret = directory.Write("secret", "secret");
  ASSERT_EQ(chmod(secret.c_str(), 0644), 0);
  Config config;
  config.store.path = directory.Path("store");
  config.update.brokers = {"127.0.0.1:1"};
  config.update.ready_timeout = std::chrono::milliseconds(1);
  config.update.kafka = {{"sasl.password", "file:" + secret}};
  const absl::Status status = Store::Open(config, OpenMode::kCreate).status();
  if (absl::IsUnimplemented(status)) GTEST_SKIP() << "a build without Kafka";
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  config.server.secrets_readable_by_all = true;
  EXPECT_EQ(Store::Open(config, OpenMode::kCreate).status(), absl::OkStatus());
}

}  // namespace
}  // namespace hps
