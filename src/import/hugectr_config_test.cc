#include "import/hugectr_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

namespace hps {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

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
  const char* const command =
      "#     hps import --store store --model dlrm --table-from "
      "'user=/models/it'\\''s/user.model' --table-from 'item=/models/item.model' --dim 16,32 "
      "--default 0.5,1\n";
  for (const char* part :
       {command, "\n[store]\npath = \"store\"\n",
        "\n[l2]\neviction = \"least_used\"\nevict_to = 0.95\npreload = 1.0\n",
        "\n[l1]\ndevices = [0, 3]  # [] on a machine without GPUs\npreload = 1.0\n",
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
      R"({"volatile_db": {"type": "map", "overflow_resolution_target": 0.87654321,
                          "initial_cache_rate": 0.1},
          "models": [{"model": "m", "sparse_files": ["f"], "gpucacheper": 0.123456789,
                      "default_value_for_each_table": [1e39],
                      "cache_refresh_percentage_per_iteration": 1.0000001}]})");
  ASSERT_TRUE(converted.ok()) << converted.status();
  for (const char* part : {"evict_to = 0.87654321\n", "preload = 0.1\n", "l1_share = 0.123456789\n",
                           "--default 1e+39\n"})
    EXPECT_THAT(converted->toml, HasSubstr(part));
  EXPECT_THAT(converted->warnings, Contains(HasSubstr("the share 1.0000001 was clamped to 1.0")));
}

TEST(HugeCtrConfigTest, EverySettingIsInOneGroup) {
  const auto converted = ConvertHugeCtrConfig(kDlrm);
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_THAT(converted->converted,
              UnorderedElementsAre(
                  "supportlonglong", "volatile_db.type", "volatile_db.overflow_policy",
                  "volatile_db.overflow_resolution_target", "volatile_db.initial_cache_rate",
                  "persistent_db.type", "models[0].model", "models[0].sparse_files",
                  "models[0].embedding_table_names", "models[0].embedding_vecsize_per_table",
                  "models[0].default_value_for_each_table", "models[0].deployed_device_list",
                  "models[0].cache_refresh_percentage_per_iteration",
                  "models[0].hit_rate_threshold", "models[0].gpucacheper", "models[0].gpucache"));
  EXPECT_THAT(converted->warnings, UnorderedElementsAre(StartsWith("volatile_db.overflow_margin: "),
                                                        StartsWith("persistent_db.path: "),
                                                        StartsWith("models[0].max_batch_size: ")));
  EXPECT_THAT(converted->not_needed, UnorderedElementsAre("volatile_db.num_partitions"));
}

TEST(HugeCtrConfigTest, ALossWithoutAnEffectIsNotNeeded) {
  const auto warnings = [](const std::string& members) {
    const auto converted =
        ConvertHugeCtrConfig(ModelWith(R"("hit_rate_threshold": 1.1, )" + members));
    EXPECT_TRUE(converted.ok()) << converted.status();
    return converted->warnings;
  };
  EXPECT_THAT(warnings(R"("embedding_cache_type": "dynamic", "use_static_table": "false",
                          "fp8_quant": false, "refresh_interval": 0, "dense_file": "")"),
              IsEmpty());
  // Settings that share a reason share a line.
  EXPECT_THAT(warnings(R"("dense_file": "d", "network_file": "n")"),
              ElementsAre(StartsWith("models[0].dense_file, models[0].network_file: ")));
  EXPECT_THAT(warnings(R"("embedding_cache_type": "uvm", "refresh_interval": 0.5, "typo": 1)"),
              UnorderedElementsAre(StartsWith("models[0].embedding_cache_type: "),
                                   HasSubstr("[update] refresh_interval"),
                                   "models[0].typo: no setting of HugeCTR since 4.3; ignored"));
}

TEST(HugeCtrConfigTest, Redis) {
  const auto converted = ConvertHugeCtrConfig(R"({
    "volatile_db": {"type": "redis_cluster", "address": "h:1;[::1]:2", "password": "secret",
                    "user_name": "me", "num_node_connections": 7, "enable_tls": true,
                    "tls_ca_certificate": "ca.crt", "overflow_policy": "evict_oldest",
                    "overflow_resolution_target": 0.8, "initial_cache_rate": 0.1,
                    "update_filters": [".+"]},
    "persistant_db": {}, "supportlonglong": false,
    "models": [{"model": "m", "hit_rate_threshold": 1, "embeding": 1}]})");
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_THAT(
      converted->warnings,
      UnorderedElementsAre(
          StartsWith("volatile_db.password: write it into the file"),
          StartsWith("volatile_db.overflow_policy, volatile_db.overflow_resolution_target: Redis"),
          HasSubstr("[update] tables"), StartsWith("supportlonglong: "),
          StartsWith("models[0].embeding, persistant_db: no setting")));
  EXPECT_THAT(converted->warnings, Not(Contains(HasSubstr("secret"))));
  EXPECT_THAT(converted->toml, Not(HasSubstr("secret")));
  EXPECT_THAT(converted->toml,
              HasSubstr("\n[l2]\nkind = \"redis\"\npreload = 0.1\n\n[l2.redis]\ncluster = true\n"
                        "nodes = [\"h:1\", \"[::1]:2\"]\nuser = \"me\"\n"
                        "password_file = \"redis_password\"\n"
                        "connections_per_node = 7\ntls = true\n"
                        "tls_ca = \"ca.crt\"\ntls_server_name = \"redis.localhost\"\n"
                        "tls_certificate = \"client_cert.pem\"\n"
                        "tls_key = \"client_key.pem\"\n"));
}

TEST(HugeCtrConfigTest, RedisHasAPort) {
  const auto nodes = [](const std::string& address) {
    const auto converted =
        ConvertHugeCtrConfig(R"({"volatile_db": {"type": "redis", "address": ")" + address +
                             R"("}, "models": [{"model": "m"}]})");
    EXPECT_TRUE(converted.ok()) << converted.status();
    const size_t begin = converted->toml.find("nodes = ");
    return converted->toml.substr(begin, converted->toml.find('\n', begin) - begin);
  };
  EXPECT_EQ(nodes("a"), R"(nodes = ["a:6379"])");
  EXPECT_EQ(nodes("a;b:7001, c"), R"(nodes = ["a:6379", "b:7001", "c:6379"])");
  EXPECT_EQ(nodes("[::1];[::2]:5"), R"(nodes = ["[::1]:6379", "[::2]:5"])");
  for (const char* wrong : {"a:", "a:0", "a:65536", "a:b", ":1", "::1", "a:1:2", "[]", "[::1:5",
                            "redis://a:1", ";", ""}) {
    ExpectError(R"({"volatile_db": {"type": "redis", "address": ")" + std::string(wrong) +
                    R"("}, "models": [{"model": "m"}]})",
                "volatile_db.address: ");
  }
}

TEST(HugeCtrConfigTest, NamesOfLevel2) {
  const auto convert = [](const std::string& type) {
    return *ConvertHugeCtrConfig(R"({"volatile_db": {"type": ")" + type +
                                 R"("}, "models": [{"model": "m", "hit_rate_threshold": 1}]})");
  };
  for (const char* off : {"disabled", "disable", "none"}) {
    EXPECT_THAT(convert(off).toml, HasSubstr("[l2]\nkind = \"none\"\n\n")) << off;
    EXPECT_THAT(convert(off).warnings, IsEmpty()) << off;
  }
  for (const char* map : {"hash_map", "hashmap", "hash", "map", "parallel_hash_map",
                          "parallel_hashmap", "parallel_hash", "parallel_map"}) {
    EXPECT_THAT(convert(map).toml, HasSubstr("[l2]\npreload = 1.0\n")) << map;
    EXPECT_THAT(convert(map).warnings, IsEmpty()) << map;
  }
  for (const char* shared : {"multi_process_hash_map", "multi_process_hashmap",
                             "multi_process_hash", "multi_process_map"}) {
    EXPECT_THAT(convert(shared).toml, HasSubstr("[l2]\npreload = 1.0\n")) << shared;
    EXPECT_THAT(convert(shared).warnings, ElementsAre(HasSubstr("level 2 of its own"))) << shared;
  }
  // As in HugeCTR, which has no volatile database then.
  for (const char* unknown : {"rocks_db", "hash map", "Hash_Map", "memory"}) {
    EXPECT_THAT(convert(unknown).toml, HasSubstr("kind = \"none\"")) << unknown;
    EXPECT_THAT(convert(unknown).warnings, ElementsAre(HasSubstr(unknown))) << unknown;
  }
  // Without a section it has a hash map that it fills; without a type none.
  EXPECT_THAT(ConvertHugeCtrConfig(ModelWith(R"("gpucache": true)"))->toml,
              HasSubstr("[l2]\npreload = 1.0\n"));
  EXPECT_THAT(ConvertHugeCtrConfig(R"({"volatile_db": {}, "models": [{"model": "m"}]})")->toml,
              HasSubstr("kind = \"none\""));
}

TEST(HugeCtrConfigTest, TheTypeDecidesAboutTheUpdateSource) {
  const auto convert = [](const std::string& source, const std::string& more = "") {
    return *ConvertHugeCtrConfig(R"({"update_source": )" + source + more +
                                 R"(, "models": [{"model": "m", "hit_rate_threshold": 1}]})");
  };
  for (const char* none : {"null", "{}", R"({"brokers": "a:1"})", R"({"type": "null"})",
                           R"({"type": "none", "brokers": "a:1", "poll_timeout_ms": 5})"}) {
    EXPECT_THAT(convert(none).toml, Not(HasSubstr("[update]"))) << none;
    EXPECT_THAT(convert(none).warnings, IsEmpty()) << none;
  }
  for (const char* type : {"kafka_message_queue", "kafka_mq", "kafka"}) {
    const std::string begin = std::string(R"({"type": ")") + type + "\"";
    EXPECT_THAT(convert(begin + "}").toml, HasSubstr("[update]\nbrokers = [\"127.0.0.1:9092\"]\n"));
    const ConvertedConfig two =
        convert(begin + R"(, "brokers": "a:1;b,c:2", "poll_timeout_ms": 5})");
    EXPECT_THAT(two.toml, HasSubstr("brokers = [\"a:1\", \"b\", \"c:2\"]\n"));
    EXPECT_THAT(two.not_needed, ElementsAre("update_source.poll_timeout_ms"));
  }
  EXPECT_THAT(convert(R"({"type": "pulsar"})").warnings, ElementsAre(HasSubstr("'pulsar'")));
  EXPECT_THAT(convert(R"({"type": "pulsar"})").toml, Not(HasSubstr("[update]")));
  EXPECT_THAT(convert(R"({"type": "kafka"})", R"(, "volatile_db": {"type": "none"})").warnings,
              ElementsAre(HasSubstr("both databases are disabled")));
  EXPECT_THAT(convert(R"({"type": "kafka"})", R"(, "volatile_db": {"type": "none"},
                         "persistent_db": {"type": "rocks"})")
                  .warnings,
              IsEmpty());
}

TEST(HugeCtrConfigTest, OneImportForEachModel) {
  const auto converted = ConvertHugeCtrConfig(R"({"models": [
    {"model": "a", "sparse_files": ["x", "y"], "embedding_vecsize_per_table": [4, 4],
     "default_value_for_each_table": [0.5], "deployed_device_list": [1, 0]},
    {"model": "b", "sparse_files": ["z"], "embedding_vecsize_per_table": [],
     "deployed_device_list": [2], "hit_rate_threshold": 0.5},
    {"model": "c", "deployed_device_list": [7], "gpucache": false}]})",
                                              "out dir/hps.toml");
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_THAT(converted->imports,
              ElementsAre("hps import --config 'out dir/hps.toml' --model a --table-from "
                          "'sparse_embedding0=x' --table-from 'sparse_embedding1=y' --dim 4 "
                          "--default 0.5,0",
                          "hps import --config 'out dir/hps.toml' --model b --table-from "
                          "'sparse_embedding0=z' --default 0"));
  EXPECT_THAT(converted->toml, HasSubstr("name = \"a\"\ntables = [\"sparse_embedding0\", "
                                         "\"sparse_embedding1\"]\n"));
  EXPECT_THAT(converted->toml, HasSubstr("devices = [0, 1, 2]  # []"));
  EXPECT_THAT(converted->toml, HasSubstr("hit_rate_threshold = 1.0\n"));
  EXPECT_THAT(converted->warnings, Contains(StartsWith("deployed_device_list: models differ")));
  EXPECT_THAT(converted->warnings,
              Contains(StartsWith("models[0].hit_rate_threshold, models[2].hit_rate_threshold: ")));
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
  ExpectError(ModelWith(R"("embedding_vecsize_per_table": [1, 0])"),
              "models[0].embedding_vecsize_per_table[1]: expected a whole number from 1 to");
  ExpectError(ModelWith(R"("deployed_device_list": [-1])"), "a whole number from 0 to 1023");
  ExpectError(ModelWith(R"("sparse_files": ["a\nb"])"), "a text of one line");
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
