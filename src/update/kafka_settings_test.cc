#include "update/kafka_settings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "testing/test_directory.h"

namespace hps {
namespace {

absl::StatusCode CodeOf(const KafkaSettings::Map& settings, const std::string& directory = {}) {
  return KafkaSettings::Make(settings, directory).status().code();
}

TEST(KafkaSettings, PassWhatIsNotRefused) {
  const KafkaSettings::Map settings = {{"compression.type", "lz4"},
                                       {"sasl.username", "hps"},
                                       {"ssl.ca.location", "/etc/ssl/ca.pem"},
                                       {"fetch.max.bytes", "1000000"}};
  const auto made = KafkaSettings::Make(settings);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->values(), settings);
}

TEST(KafkaSettings, RefusesByName) {
  for (const char* name : {"group.id",
                           "group.instance.id",
                           "enable.auto.commit",
                           "auto.commit.interval.ms",
                           "auto.commit.enable",
                           "enable.auto.offset.store",
                           "offset.store.method",
                           "auto.offset.reset",
                           "check.crcs",
                           "allow.auto.create.topics",
                           "plugin.library.paths",
                           "ssl.engine.location",
                           "sasl.kerberos.kinit.cmd",
                           "bootstrap.servers",
                           "metadata.broker.list",
                           "acks",
                           "request.required.acks",
                           "enable.idempotence",
                           "transactional.id",
                           "partitioner",
                           "topic.acks",
                           "topic.auto.commit.enable"}) {
    const auto made = KafkaSettings::Make({{name, "secret value"}});
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(made.status().message().find(name), std::string::npos) << made.status();
    EXPECT_EQ(made.status().message().find("secret value"), std::string::npos) << made.status();
  }
}

TEST(KafkaSettings, RefusesWhatIsNoName) {
  for (const char* name : {"", " group.id", "Group.Id", "group.id ", "a=b"}) {
    EXPECT_EQ(CodeOf({{name, "x"}}), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST(KafkaSettings, ReadsVariablesAndFiles) {
  const std::filesystem::path directory =
      std::filesystem::path(::testing::TempDir()) / "kafka_settings";
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "password") << "of the file\n";
  ASSERT_EQ(setenv("HPS_TEST_SECRET", "of the variable", 1), 0);
  const auto made = KafkaSettings::Make(
      {{"sasl.password", "file:password"}, {"sasl.username", "env:HPS_TEST_SECRET"}}, directory);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->values().at("sasl.password"), "of the file");
  EXPECT_EQ(made->values().at("sasl.username"), "of the variable");
  const std::string absolute = "file:" + (directory / "password").string();
  EXPECT_EQ(CodeOf({{"sasl.password", absolute}}), absl::StatusCode::kOk);
  std::ofstream(directory / "large") << std::string((64 << 10) + 1, 'x');
  EXPECT_EQ(CodeOf({{"sasl.password", "file:large"}}, directory),
            absl::StatusCode::kResourceExhausted);
  std::filesystem::remove_all(directory);
}

TEST(KafkaSettings, FilesWithSecretsAreNotForEverybody) {
  const TestDirectory directory;
  const std::string file = directory.Write("of_all", "secret");
  ASSERT_EQ(chmod(file.c_str(), 0644), 0);
  const auto checked = [&directory](const KafkaSettings::Map& settings, bool allowed) {
    return KafkaSettings::Make(settings, directory.path())->CheckSecretFiles(allowed).code();
  };
  for (const auto& [name, value] : KafkaSettings::Map{{"sasl.password", "file:of_all"},
                                                      {"ssl.key.password", "file:" + file},
                                                      {"ssl.key.pem", "file:of_all"},
                                                      {"ssl.key.location", file},
                                                      {"ssl.keystore.location", file},
                                                      {"sasl.kerberos.keytab", file}}) {
    EXPECT_EQ(checked({{name, value}}, false), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_EQ(checked({{name, value}}, true), absl::StatusCode::kOk) << name;
  }
  for (const auto& [name, value] : KafkaSettings::Map{{"ssl.ca.location", file},
                                                      {"ssl.certificate.pem", "file:of_all"},
                                                      {"sasl.password", file}})
    EXPECT_EQ(checked({{name, value}}, false), absl::StatusCode::kOk) << name;
  ASSERT_EQ(chmod(file.c_str(), 0640), 0);
  EXPECT_EQ(checked({{"ssl.key.location", file}}, false), absl::StatusCode::kOk);
}

TEST(KafkaSettings, SaysWhatIsMissing) {
  EXPECT_EQ(CodeOf({{"sasl.password", "env:HPS_TEST_NO_SUCH_VARIABLE"}}),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf({{"sasl.password", "file:/no/such/file"}}), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf({{"sasl.password", "file:/"}}), absl::StatusCode::kNotFound);
}

TEST(KafkaSettings, PrintsNoSecrets) {
  const auto printable = PrintableKafkaSettings({{"sasl.password", "a"},
                                                 {"sasl.oauthbearer.client.secret", "b"},
                                                 {"ssl.key.pem", "c"},
                                                 {"sasl.username", "hps"}});
  EXPECT_EQ(printable, (KafkaSettings::Map{{"sasl.password", "***"},
                                           {"sasl.oauthbearer.client.secret", "***"},
                                           {"ssl.key.pem", "***"},
                                           {"sasl.username", "hps"}}));
}

}  // namespace
}  // namespace hps
