#include "import/hugectr_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

namespace hps {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDlrm[] = R"({
  "supportlonglong": true,  // a comment, as in HugeCTR's documentation
  "volatile_db": {"type": "parallel_hash_map", "num_partitions": 15,
                  "overflow_policy": "evict_least_used", "overflow_margin": 1000000,
                  "overflow_resolution_target": 0.95, "initial_cache_rate": 1.0},
  "persistent_db": {"type": "rocks_db", "path": "/data/rocksdb"},
  "models": [{
    "model": "dlrm",
    "sparse_files": ["/models/it's/user.model", "/models/item.model"],
    "embedding_table_names": ["user", "item"],
    "embedding_vecsize_per_table": ["16", 32],
    "default_value_for_each_table": [0.5, "1.0"],
    "deployed_device_list": [0, 3],
    "cache_refresh_percentage_per_iteration": "0.2",
    "hit_rate_threshold": 1.1,
    "gpucacheper": 0.5,
    "gpucache": "true",
    "max_batch_size": 1024
  }]
})";

std::string ModelWith(const std::string& members) {
  return R"({"models": [{"model": "m", )" + members + "}]}";
}

void ExpectError(const std::string& json, const std::string& part) {
  const auto converted = ConvertHugeCtrConfig(json);
  ASSERT_EQ(converted.status().code(), absl::StatusCode::kInvalidArgument) << json;
  EXPECT_THAT(std::string(converted.status().message()), HasSubstr(part)) << json;
}

TEST(HugeCtrConfigTest, ASettingWithAnEquivalentIsConverted) {
  const auto converted = ConvertHugeCtrConfig(kDlrm);
  ASSERT_TRUE(converted.ok()) << converted.status();
  for (const char* part :
       {"hps import --store store --table dlrm/user --from '/models/it'\\''s/user.model' --dim 16 "
        "--default 0.5\n",
        "--table dlrm/item --from '/models/item.model' --dim 32 --default 1\n",
        "\n[store]\npath = \"store\"\n",
        "\n[l2]\neviction = \"least_used\"\nevict_to = 0.95\npreload = 1.0\n",
        "\n[l1]\ndevices = \"auto\"", "[0, 3]", "\npreload = 1.0\n",
        "\n[lookup]\nhit_rate_threshold = 1.0\n",
        "\n[[model]]\nname = \"dlrm\"\ntables = [\"user\", \"item\"]\n",
        "[[model.table]]\nname = \"item\"\nl1_share = 0.5\n"}) {
    EXPECT_THAT(converted->toml, HasSubstr(part));
  }
}

// Catches: numbers with six digits, which are other float32 values.
TEST(HugeCtrConfigTest, NumbersKeepTheirDigits) {
  for (const char* text : {"0.12345678", "123456.789", "16777217", "999999.5", "-0.000123456789",
                           "1234567", "3.4028234e38", "100000.5", "1e-45", "0.1", "1e-7", "0"}) {
    const auto converted = ConvertHugeCtrConfig(ModelWith(
        std::string(R"("sparse_files": ["f"], "default_value_for_each_table": [)") + text + "]"));
    ASSERT_TRUE(converted.ok()) << converted.status();
    const size_t place = converted->toml.find("--default ");
    ASSERT_NE(place, std::string::npos) << text;
    EXPECT_EQ(std::strtof(converted->toml.c_str() + place + 10, nullptr),
              std::strtof(text, nullptr))
        << text;
  }
  const auto converted = ConvertHugeCtrConfig(
      R"({"volatile_db": {"overflow_resolution_target": 0.87654321, "initial_cache_rate": 0.1},
          "models": [{"model": "m", "sparse_files": ["f"], "gpucacheper": 0.123456789,
                      "default_value_for_each_table": [1e39],
                      "hit_rate_threshold": 1.0000001}]})");
  ASSERT_TRUE(converted.ok()) << converted.status();
  for (const char* part : {"evict_to = 0.87654321\n", "preload = 0.1\n", "l1_share = 0.123456789\n",
                           "--default 1e+39\n"})
    EXPECT_THAT(converted->toml, HasSubstr(part));
  EXPECT_THAT(converted->warnings, Contains(HasSubstr("the share 1.0000001 was clamped to 1.0")));
}

TEST(HugeCtrConfigTest, ASettingWithoutAnEquivalentIsAWarning) {
  const auto converted = ConvertHugeCtrConfig(kDlrm);
  ASSERT_TRUE(converted.ok()) << converted.status();
  for (const char* part :
       {"volatile_db.num_partitions: ", "volatile_db.overflow_margin: ", "persistent_db.path: ",
        "models[0].max_batch_size: ",
        "models[0].hit_rate_threshold: the share 1.1 was clamped to 1", "deployed_device_list: "}) {
    EXPECT_THAT(converted->warnings, Contains(HasSubstr(part)));
  }
  const auto other = ConvertHugeCtrConfig(R"({
    "volatile_db": {"type": "redis_cluster", "address": "h:1;[::1]:2", "password": "secret",
                    "user_name": "me", "num_node_connections": 7, "enable_tls": true,
                    "tls_ca_certificate": "ca.crt"},
    "update_source": {"type": "kafka_message_queue", "brokers": "a:1;b:2", "poll_timeout_ms": 5},
    "persistant_db": {}, "supportlonglong": false,
    "models": [{"model": "m", "embeding": 1}]})");
  ASSERT_TRUE(other.ok()) << other.status();
  for (const char* part : {"volatile_db.password: write it into the file",
                           "update_source.poll_timeout_ms: ", "persistant_db: not known",
                           "supportlonglong: ", "models[0].embeding: not known"}) {
    EXPECT_THAT(other->warnings, Contains(HasSubstr(part)));
  }
  EXPECT_THAT(other->warnings, Not(Contains(HasSubstr("secret"))));
  EXPECT_THAT(other->toml, Not(HasSubstr("secret")));
  EXPECT_THAT(other->toml, HasSubstr("\n[l2]\nkind = \"redis\"\n\n[l2.redis]\ncluster = true\n"
                                     "nodes = [\"h:1\", \"[::1]:2\"]\nuser = \"me\"\n"
                                     "password_file = \"redis_password\"\n"
                                     "connections_per_node = 7\ntls = true\n"
                                     "tls_ca = \"ca.crt\"\n"
                                     "tls_certificate = \"client_cert.pem\"\n"
                                     "tls_key = \"client_key.pem\"\n"
                                     "tls_server_name = \"redis.localhost\"\n"));
  EXPECT_THAT(other->toml, HasSubstr("[update]\nbrokers = [\"a:1\", \"b:2\"]\n"));
}

TEST(HugeCtrConfigTest, LevelsThatAreOffStayOff) {
  const auto converted = ConvertHugeCtrConfig(
      R"({"volatile_db": {"type": "disabled"}, "models": [{"model": "m", "gpucache": false}]})");
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_THAT(converted->toml, HasSubstr("[l2]\nkind = \"none\"\n"));
  EXPECT_THAT(converted->toml, HasSubstr("[l1]\ndevices = []\n"));
}

TEST(HugeCtrConfigTest, ErrorsNameThePlace) {
  ExpectError("{", "not JSON: ");
  ExpectError(R"({"models": [{"password" = "secret"}]})", "line 1, column ");
  ExpectError("[]", "expected a JSON object");
  ExpectError("{}", "models: expected a list");
  ExpectError(R"({"models": [1]})", "models[0]: expected an object, found number");
  ExpectError(R"({"models": [{}]})", "models[0]: 'model', the name, is missing");
  ExpectError(R"({"models": [{"model": "a b"}]})", "models[0].model: ");
  ExpectError(R"({"models": [{"model": "m"}, {"model": "m"}]})", "models[1].model: ");
  ExpectError(ModelWith(R"("sparse_files": "x")"), "models[0].sparse_files: expected a list");
  ExpectError(ModelWith(R"("sparse_files": {"x": "y"})"), "fused");
  ExpectError(ModelWith(R"("sparse_files": [1])"), "models[0].sparse_files[0]: expected a string");
  ExpectError(ModelWith(R"("sparse_files": ["a"], "embedding_table_names": ["x", "y"])"),
              "1 sparse_files, but 2 embedding_table_names");
  ExpectError(ModelWith(R"("sparse_files": ["a", "b"], "embedding_table_names": ["x", "x"])"),
              "named twice");
  ExpectError(ModelWith(R"("sparse_files": ["a"], "embedding_table_names": ["x/y"])"),
              "models[0].embedding_table_names[0]: ");
  ExpectError(ModelWith(R"("embedding_vecsize_per_table": [1.5])"), "a whole number");
  ExpectError(ModelWith(R"("gpucache": 1)"), "models[0].gpucache: expected true or false");
  ExpectError(ModelWith(R"("gpucacheper": "much")"), "models[0].gpucacheper: expected a number");
  ExpectError(R"({"models": [{"model": "m"}], "volatile_db": []})", "volatile_db: ");
  ExpectError(std::string(kHugeCtrConfigBytesMax + 1, ' '), "bytes");
}

TEST(HugeCtrConfigTest, RandomMutantsAreConvertedOrRefused) {
  std::mt19937_64 random(20260101);
  const std::string original = kDlrm;
  size_t converted_count = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string mutant = original;
    for (uint64_t edits = random() % 4 + 1; edits > 0; --edits) {
      const size_t at = random() % mutant.size();
      switch (random() % 3) {
        case 0:
          mutant[at] = static_cast<char>(random());
          break;
        case 1:
          mutant.erase(at, random() % 20);
          break;
        default:
          mutant.insert(at, original.substr(random() % original.size(), random() % 20));
      }
      if (mutant.empty()) mutant = "{";
    }
    converted_count += ConvertHugeCtrConfig(mutant).ok();
  }
  EXPECT_GT(converted_count, 0u);
  EXPECT_LT(converted_count, 5000u);
}

}  // namespace
}  // namespace hps
