#include "hps/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "base/limits.h"
#include "node/config_check.h"
#include "node/toml_file.h"
#include "tier/redis_tier.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "hps_config_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/hps.toml";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  absl::StatusOr<Config> Load(const std::string& text) const {
    std::ofstream(path_) << text;
    return LoadConfig(path_);
  }

  // The error's place within the file ("3:1") must be named, and every one of `parts`.
  void ExpectError(const std::string& text, absl::StatusCode code, const std::string& place,
                   const std::vector<std::string>& parts) const {
    const absl::Status status = Load(text).status();
    EXPECT_EQ(status.code(), code) << text << "\n" << status;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(place.empty() ? path_ + ": " : path_ + ":" + place + ": "))
        << text;
    for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part)) << text;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  void ExpectInvalid(const std::string& text, const std::string& place,
                     const std::vector<std::string>& parts) const {
    ExpectError(text, absl::StatusCode::kInvalidArgument, place, parts);
  }

  std::string directory_;
  std::string path_;
};

TEST_F(ConfigTest, AnEmptyFileGivesTheDefaults) {
  const auto config = Load("");
  ASSERT_TRUE(config.ok()) << config.status();
  Config defaults;
  defaults.store.path = directory_ + "/store";
  EXPECT_EQ(PrintConfig(*config), PrintConfig(defaults));
  EXPECT_EQ(config->store.cache_bytes, uint64_t{1} << 30);
  EXPECT_TRUE(config->model.empty());
}

// Catches: a quoted key with the name of a section, or none, is taken for what it resembles.
TEST_F(ConfigTest, AQuotedKeyIsNoSection) {
  for (const char* text : {"[\"model.table\"]\nname = \"x\"\n", "\"model.table\" = 1\n",
                           "\"model.name\" = \"x\"\n", "[\"model.name\"]\n", "\"\" = \"rows\"\n"}) {
    const absl::Status refused = Load(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << text << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("unknown setting")) << text;
  }
}

TEST_F(ConfigTest, ReadsEverySetting) {
  const auto config = Load(R"(
[store]
path = "rows"
cache_bytes = "2GiB"
write_buffer_bytes = "64MiB"
sync = "always"
sync_interval = "250ms"
free_bytes_min = 1048576
[l2]
kind = "none"
bytes_max = "3GiB"
preload = 1
eviction = "least_used"
evict_from = 0.9
evict_to = 0.8
huge_pages = false
[l1]
devices = []
[lookup]
hit_rate_threshold = 0.25
timeout = "20us"
[threads]
fetch = 3
promote = 2
[[model]]
name = "dlrm"
tables = ["user", "item"]
[[model.table]]
name = "user"
l2_share = 0.5
[[model.table]]
name = "item"
l2_bytes = "1MiB"
[[model]]
name = "dcn"
)");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->store.path, directory_ + "/rows");
  EXPECT_EQ(config->store.cache_bytes, uint64_t{2} << 30);
  EXPECT_EQ(config->store.write_buffer_bytes, uint64_t{64} << 20);
  EXPECT_EQ(config->store.sync, SyncMode::kAlways);
  EXPECT_EQ(config->store.sync_interval, std::chrono::milliseconds(250));
  EXPECT_EQ(config->store.free_bytes_min, uint64_t{1} << 20);
  EXPECT_EQ(config->l2.kind, L2Kind::kNone);
  EXPECT_EQ(config->l2.bytes_max, uint64_t{3} << 30);
  EXPECT_EQ(config->l2.preload, 1.0);
  EXPECT_EQ(config->l2.eviction, EvictionPolicy::kLeastUsed);
  EXPECT_EQ(config->l2.evict_from, 0.9);
  EXPECT_EQ(config->l2.evict_to, 0.8);
  EXPECT_FALSE(config->l2.huge_pages);
  EXPECT_FALSE(config->l1.devices_auto);
  EXPECT_TRUE(config->l1.devices.empty());
  EXPECT_EQ(config->lookup.hit_rate_threshold, 0.25);
  EXPECT_EQ(config->lookup.timeout, std::chrono::microseconds(20));
  EXPECT_EQ(config->threads.fetch, 3u);
  EXPECT_EQ(config->threads.promote, 2u);
  ASSERT_EQ(config->model.size(), 2u);
  EXPECT_EQ(config->model[0].name, "dlrm");
  EXPECT_EQ(config->model[0].tables, (std::vector<std::string>{"user", "item"}));
  ASSERT_EQ(config->model[0].table.size(), 2u);
  EXPECT_EQ(config->model[0].table[0].l2_share, 0.5);
  EXPECT_EQ(config->model[0].table[1].l2_bytes, uint64_t{1} << 20);
  EXPECT_EQ(config->model[1].name, "dcn");
  EXPECT_EQ(config->origin.at("store.path"), path_ + ":3");
  EXPECT_EQ(config->origin.at("model[dlrm].table[item].l2_bytes"), path_ + ":33");
}

// Catches: a default that is relative to the working directory.
TEST_F(ConfigTest, TheDefaultStoreIsBesideTheFile) {
  const auto config = Load("[lookup]\ntimeout = \"1s\"\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->store.path, directory_ + "/store");
  EXPECT_NE(PrintConfig(*config).find("store.path = \"" + directory_ + "/store\"  # default"),
            std::string::npos)
      << PrintConfig(*config);
}

// Catches: a default that is normalized differently from a path in the file.
TEST_F(ConfigTest, TheDefaultStoreIsReadAsAnyPath) {
  std::ofstream(path_) << "[lookup]\n";
  const auto config = LoadConfig(directory_ + "/./hps.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->store.path, directory_ + "/store");
}

TEST_F(ConfigTest, AnAbsolutePathStaysAsItIs) {
  const auto config = Load("[store]\npath = \"/somewhere/else\"\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->store.path, "/somewhere/else");
}

TEST_F(ConfigTest, AnUnknownSettingNamesTheNearest) {
  ExpectInvalid("[l2]\nbyts_max = \"1GiB\"\n", "2:1",
                {"'l2.byts_max'", "did you mean 'bytes_max'"});
  ExpectInvalid("[stor]\npath = \"x\"\n", "1:2", {"'stor'", "did you mean 'store'"});
  ExpectInvalid("timeout = \"1s\"\n", "1:1", {"'timeout'", "did you mean 'lookup.timeout'"});
  ExpectInvalid("[[model]]\nname = \"m\"\ntabels = []\n", "3:1", {"'model.tabels'", "'tables'"});
  ExpectInvalid("[[model]]\nname = \"m\"\n[[model.table]]\nname = \"t\"\nl2_shar = 0.5\n", "5:1",
                {"'model.table.l2_shar'", "'l2_share'"});
  ExpectInvalid("[server.batching]\nwaits = \"1s\"\n", "2:1",
                {"'server.batching.waits'", "did you mean 'wait'"});
  ExpectInvalid("[entirely_else]\n", "1:2", {"'entirely_else'"});
}

TEST_F(ConfigTest, AWrongTypeNamesExpectedAndFound) {
  ExpectInvalid("[store]\npath = 3\n", "2:8", {"store.path", "expected a path", "the integer 3"});
  ExpectInvalid("[store]\ncache_bytes = true\n", "2:15", {"a size such as", "a boolean"});
  ExpectInvalid("[store]\ncache_bytes = \"1GB\"\n", "2:15", {"'1GB' is not a size"});
  ExpectInvalid("[store]\nsync = \"sometimes\"\n", "2:8", {"\"always\" | ", "\"sometimes\""});
  ExpectInvalid("[lookup]\ntimeout = 1\n", "2:11", {"a duration such as", "the integer 1"});
  ExpectInvalid("[l2]\nhuge_pages = \"yes\"\n", "2:14", {"true or false", "the string \"yes\""});
  ExpectInvalid("[l2]\npreload = \"half\"\n", "2:11", {"expected a number"});
  ExpectInvalid("[threads]\nfetch = 1.5\n", "2:9", {"expected an integer", "the number 1.5"});
  ExpectInvalid("[threads]\nfetch = 1979-05-27\n", "2:9", {"a date or time"});
  ExpectInvalid("[l1]\ndevices = [\"a\"]\n", "2:11", {"\"auto\" or a list", "a list of strings"});
  ExpectInvalid("[l1]\ndevices = [[0]]\n", "2:11", {"mixed or nested"});
  ExpectInvalid("l2 = 3\n", "1:6", {"'l2' is a section", "the integer 3"});
  ExpectInvalid("[model]\nname = \"m\"\n", "1:1", {"[[model]]", "a table"});
  ExpectInvalid("[[model]]\nname = \"m\"\ntable = 1\n", "3:9", {"[[model.table]]"});
  ExpectInvalid("[[model]]\nname = \"m\"\ntables = [1]\n", "3:10", {"list of names"});
  ExpectInvalid("[[model]]\ntables = []\n", "1:1", {"needs a name"});
  ExpectInvalid("[[model]]\nname = \"m\"\n[[model.table]]\nl2_share = 0.1\n", "3:1",
                {"needs a name"});
}

TEST_F(ConfigTest, OutOfRangeNamesTheRange) {
  ExpectInvalid("[l2]\npreload = 1.5\n", "2:11", {"l2.preload = 1.5", "0.0 to 1.0"});
  ExpectInvalid("[l2]\npreload = nan\n", "2:11", {"0.0 to 1.0"});
  ExpectInvalid("[l2]\nbytes_max = 0\n", "2:13", {"1B to 1024TiB"});
  ExpectInvalid("[l2]\nbytes_max = -1\n", "2:13", {"out of range", "found -1"});
  ExpectInvalid("[l2]\nbytes_max = \"automatic\"\n", "2:13", {"automatic"});
  ExpectInvalid("[l2]\nbytes_max = \"99999999TiB\"\n", "2:13", {"below 2^64"});
  ExpectInvalid("[lookup]\ntimeout = \"2h\"\n", "2:11", {"0s to 1h"});
  ExpectInvalid("[threads]\nfetch = 5000000000\n", "2:9", {"0 to 1024"});
  ExpectInvalid("[threads]\npromote = 0\n", "2:11", {"1 to 64"});
  ExpectInvalid("[l1]\ndevices = [-1]\n", "2:11", {"0 to 1023"});
  ExpectInvalid("[l1]\npreload = -0.1\n", "2:11", {"l1.preload", "0.0 to 1.0"});
  ExpectInvalid("[l1]\ncalls_max = 1025\n", "2:13", {"0 to 1024"});
  ExpectInvalid("[l1]\ncall_keys_max = 4194305\n", "2:17", {"1 to 4194304"});
  ExpectInvalid("[l2]\nevict_from = 0.5\nevict_to = 0.6\n", "", {"l2.evict_to", "evict_from"});
  ExpectInvalid("[server]\nhttp = \"localhost\"\n", "2:8", {"\"host:port\""});
  ExpectInvalid("[server]\nhttp = \"localhost:65536\"\n", "2:8", {"a port from 0 to 65535"});
  ExpectInvalid("[store]\npath = \"\"\n", "2:8", {"expected a path"});
}

TEST_F(ConfigTest, TheServersSettingsAreChecked) {
  const auto config = Load(
      "[server]\nhttp = \"\"\nlate_answers = \"error\"\nkeys_in_flight_max = 5000000000\n"
      "dense_math = \"float16\"\n"
      "[server.batching]\nkeys_max = 100\nwait = \"50us\"\n"
      "[server.security]\ntoken_file = \"token\"\nrepository_control = true\n"
      "[log]\nlevel = \"info\"\nformat = \"json\"\nfile = \"/var/log/hps.log\"\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->server.http, "");
  EXPECT_EQ(config->server.late_answers, LateAnswers::kError);
  EXPECT_EQ(config->server.dense_math, DenseMath::kFloat16);
  EXPECT_EQ(config->server.keys_in_flight_max, 5'000'000'000u);
  EXPECT_EQ(config->server.batch_keys_max, 100u);
  EXPECT_EQ(config->server.batch_wait, std::chrono::microseconds(50));
  EXPECT_EQ(config->server.token_file, directory_ + "/token");
  EXPECT_TRUE(config->server.repository_control);
  EXPECT_EQ(config->log.level, LogLevel::kInfo);
  EXPECT_EQ(config->log.format, LogFormat::kJson);
  EXPECT_EQ(config->log.file, "/var/log/hps.log");
  EXPECT_THAT(PrintConfig(*config), HasSubstr("server.batching.wait = \"50us\"  # " + path_));
  ExpectInvalid("[server]\nkeys_in_flight_max = 0\n", "2:22", {"1 to "});
  ExpectInvalid("[server]\nkeys_in_flight_max = -1\n", "2:22", {"out of range"});
  ExpectInvalid("[server]\nkeys_in_flight_max = \"1GiB\"\n", "2:22", {"expected an integer"});
  ExpectInvalid("[server]\nthreads = 1\n", "", {"server.threads", "at least 2"});
  ExpectInvalid("[server]\nthreads = 4\nlookups = 4\n", "", {"server.lookups", "fewer"});
  // Catches: bodies that are allowed but never accepted.
  ExpectInvalid("[server]\nbytes_in_flight_max = \"48MiB\"\nbody_bytes_max = \"17MiB\"\n", "",
                {"server.body_bytes_max = 17MiB", "server.bytes_in_flight_max, which is 48MiB"});
  EXPECT_TRUE(Load("[server]\nbytes_in_flight_max = \"68MiB\"\nbody_bytes_max = \"17MiB\"\n").ok());
  ExpectInvalid("[server]\nbytes_in_flight_max = \"3MiB\"\nbody_bytes_max = \"1KiB\"\n", "2:23",
                {"4MiB"});
  ExpectInvalid("[server.security]\ntls_key = \"k\"\n", "", {"tls_certificate and tls_key"});
  ExpectInvalid("[server.security]\ntls_client_ca = \"k\"\n", "", {"needs", "tls_certificate"});
  ExpectInvalid("[server]\ngrcp = \"\"\n", "2:1", {"did you mean 'grpc'"});
  ExpectInvalid("[log]\nlevel = \"loud\"\n", "2:9", {"\"debug\" | ", "\"loud\""});
}

// Catches: a server with little memory that is refused because of a default.
TEST_F(ConfigTest, TheDefaultBodyFitsTheBytesInFlight) {
  const auto body_bytes_max = [this](const std::string& bytes_in_flight_max) {
    const auto config = Load("[server]\nbytes_in_flight_max = \"" + bytes_in_flight_max + "\"\n");
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? config->server.body_bytes_max : 0;
  };
  EXPECT_EQ(body_bytes_max("4MiB"), uint64_t{1} << 20);
  EXPECT_EQ(body_bytes_max("255MiB"), (uint64_t{255} << 20) / 4);
  EXPECT_EQ(body_bytes_max("256MiB"), uint64_t{64} << 20);
  EXPECT_EQ(body_bytes_max("2GiB"), uint64_t{64} << 20);
  EXPECT_THAT(PrintConfig(*Load("[server]\nbytes_in_flight_max = \"64MiB\"\n")),
              HasSubstr("server.body_bytes_max = \"16MiB\"  # default\n"));
  ExpectInvalid("[server]\nbytes_in_flight_max = \"128MiB\"\nbody_bytes_max = \"64MiB\"\n", "",
                {"server.body_bytes_max = 64MiB", "at most a quarter"});
}

TEST_F(ConfigTest, ModelsAreChecked) {
  ExpectInvalid("[[model]]\nname = \"../x\"\n", "2:8", {"a-z A-Z 0-9"});
  ExpectInvalid("[[model]]\nname = \"" + std::string(121, 'a') + "\"\n", "2:8", {"1 to 120"});
  ExpectInvalid("[[model]]\nname = \"m\"\n[[model]]\nname = \"m\"\n", "", {"'m' is given twice"});
  ExpectInvalid("[[model]]\nname = \"m\"\ntables = [\"a\", \"a\"]\n", "3:10", {"listed twice"});
  ExpectInvalid(
      "[[model]]\nname = \"m\"\n[[model.table]]\nname = \"t\"\nl2_share = 0.1\n"
      "l2_bytes = \"1MiB\"\n",
      "", {"exclude each other"});
  ExpectInvalid(
      "[[model]]\nname = \"m\"\n[[model.table]]\nname = \"t\"\n[[model.table]]\n"
      "name = \"t\"\n",
      "", {"'t' is given twice"});
  // Catches: settings of a table that is not served and that are ignored silently.
  ExpectInvalid(
      "[[model]]\nname = \"m\"\ntables = [\"user\"]\n[[model.table]]\nname = \"usr\"\n"
      "l2_share = 1.0\n",
      "", {"model 'm'", "[[model.table]] 'usr'", "`tables`", "did you mean 'user'"});
}

TEST_F(ConfigTest, TomlThatDoesNotParseNamesThePlace) {
  ExpectInvalid("[store]\npath = \n", "2:8", {});
  ExpectInvalid("[store\n", "1:7", {});
  // The parser's own message quotes the line break here; ours is one line.
  ExpectInvalid("[l2]\npreload = t\n", "2:12", {"expected 'true'"});
  ExpectInvalid("[store]\npath = \"a\"\npath = \"b\"\n", "3:8", {});
  ExpectInvalid(std::string(100'000, '['), "1:3", {});
}

// Catches: a recursive parser that overflows the stack on a key with many parts.
TEST_F(ConfigTest, AKeyOfTooManyPartsIsRefused) {
  std::string key = "a";
  for (int i = 0; i < 500'000; ++i) key += ".a";
  for (const std::string& text :
       {"[" + key + "]", "[[" + key + "]]", key + " = 1", "x = { " + key + " = 1 }", "[" + key}) {
    const size_t column = text.find('.', 0) + 1 + 2 * (kTomlKeyPartsMax - 1);
    ExpectInvalid("\n" + text, "2:" + std::to_string(column), {"more than 8 parts"});
  }
}

// Store::Open says whether they are there: commands that need no GPU take the same file.
TEST_F(ConfigTest, DevicesNeedNotBeThere) {
  const auto config = Load("[l1]\ndevices = [0, 1023]\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->l1.devices, (std::vector<int>{0, 1023}));
  EXPECT_TRUE(Load("[l1]\ndevices = \"auto\"\n").ok());
}

TEST_F(ConfigTest, LevelTwoOnRedis) {
  if (const absl::Status built = MakeRedisTier({}).status(); !built.ok()) {
    ExpectError("[l2]\nkind = \"redis\"\n", absl::StatusCode::kUnimplemented, "", {"HPS_REDIS"});
    GTEST_SKIP() << built;
  }
  const auto config = Load(
      "[l2]\nkind = \"redis\"\n[l2.redis]\nnodes = [\"a:1\", \"[::1]:2\", \"unix:/s\"]\n"
      "cluster = true\nuser = \"me\"\npassword_file = \"secret\"\nkey_prefix = \"p\"\n"
      "connections_per_node = 3\npartitions = 5\ntimeout = \"7ms\"\nexpire_after = \"1h\"\n"
      "write_timeout = \"8ms\"\nreplica_reads = true\n"
      "[[model]]\nname = \"m\"\n[[model.table]]\nname = \"t\"\nl2_share = 0.0\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->l2.kind, L2Kind::kRedis);
  const RedisConfig& redis = config->l2.redis;
  EXPECT_EQ(redis.nodes, (std::vector<std::string>{"a:1", "[::1]:2", "unix:/s"}));
  EXPECT_TRUE(redis.cluster);
  EXPECT_EQ(redis.user, "me");
  EXPECT_EQ(redis.password_file, directory_ + "/secret");
  EXPECT_EQ(redis.key_prefix, "p");
  EXPECT_EQ(redis.connections_per_node, 3u);
  EXPECT_EQ(redis.partitions, 5u);
  EXPECT_EQ(redis.timeout, std::chrono::milliseconds(7));
  EXPECT_EQ(redis.write_timeout, std::chrono::milliseconds(8));
  EXPECT_TRUE(redis.replica_reads);
  EXPECT_EQ(redis.expire_after, std::chrono::hours(1));
  const auto again = Load(PrintConfig(*config));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->l2.redis.nodes, redis.nodes);
  EXPECT_EQ(again->l2.redis.password_file, redis.password_file);
}

TEST_F(ConfigTest, LevelTwoInMemoryBeforeRedisByTls) {
  if (!MakeRedisTier({}).ok()) GTEST_SKIP() << "this build has no Redis client";
  const auto config = Load(
      "[l2]\nkind = \"memory+redis\"\nbytes_max = \"1GiB\"\n[l2.redis]\ntls = true\n"
      "tls_ca = \"ca\"\ntls_certificate = \"cert\"\ntls_key = \"key\"\n"
      "tls_server_name = \"redis\"\n"
      "[[model]]\nname = \"m\"\n[[model.table]]\nname = \"t\"\nl2_share = 0.5\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->l2.kind, L2Kind::kMemoryRedis);
  const auto again = Load(PrintConfig(*config));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->l2.redis.tls);
  EXPECT_EQ(again->l2.redis.tls_ca, directory_ + "/ca");
  EXPECT_EQ(again->l2.redis.tls_certificate, directory_ + "/cert");
  EXPECT_EQ(again->l2.redis.tls_key, directory_ + "/key");
  EXPECT_EQ(again->l2.redis.tls_server_name, "redis");
  ExpectInvalid(
      "[l2]\nkind = \"memory+redis\"\nbytes_max = \"1MiB\"\n[[model]]\nname = \"m\"\n"
      "[[model.table]]\nname = \"t\"\nl2_bytes = \"2MiB\"\n",
      "", {"l2.bytes_max = 1MiB"});
}

TEST_F(ConfigTest, LevelTwoOnRedisThatCannotBe) {
  if (!MakeRedisTier({}).ok()) GTEST_SKIP() << "this build has no Redis client";
  const std::string redis = "[l2]\nkind = \"redis\"\n[l2.redis]\n";
  ExpectInvalid(redis + "nodes = []\n", "", {"l2.redis.nodes", "at least one"});
  ExpectInvalid(redis + "nodes = [\"a:1\", \"b:2\"]\n", "", {"2 addresses", "cluster"});
  ExpectInvalid(redis + "nodes = [\"a\"]\n", "", {"l2.redis.nodes: 'a'", "host:port"});
  ExpectInvalid(redis + "nodes = [\"a:65536\"]\n", "", {"'a:65536'"});
  ExpectInvalid(redis + "user = \"me\"\n", "", {"l2.redis.user", "password_file"});
  ExpectInvalid(redis + "tls = true\ntls_key = \"k\"\n", "", {"tls_certificate", "tls_key"});
  ExpectInvalid(redis + "tls_ca = \"c\"\n", "", {"tls_ca", "l2.redis.tls = true"});
  ExpectInvalid(redis + "tls = true\nnodes = [\"unix:/s\"]\n", "", {"'unix:/s'", "tls"});
  ExpectInvalid(redis + "replica_reads = true\n", "", {"replica_reads", "cluster = true"});
  ExpectInvalid(redis + "write_timeout = \"10ms\"\n", "", {"write_timeout", "l2.redis.timeout"});
  for (const std::string prefix : {"", "a{b", "a b"})
    ExpectInvalid(redis + "key_prefix = \"" + prefix + "\"\n", "", {"key_prefix", "braces"});
  ExpectInvalid(redis + "timeout = \"0s\"\n", "4:11", {"l2.redis.timeout", "1ms"});
  ExpectInvalid(redis + "partitions = 4097\n", "4:14", {"l2.redis.partitions"});
  ExpectInvalid(redis + "node = []\n", "4:1", {"did you mean 'nodes'"});
  ExpectInvalid(redis +
                    "[[model]]\nname = \"m\"\n[[model.table]]\nname = \"t\"\n"
                    "l2_share = 0.5\n",
                "", {"'t'", "no budgets of tables"});
}

TEST_F(ConfigTest, AGroupThatSharesALevelTwo) {
  const std::string group = "[update]\nshared_group = \"g\"\n";
  ExpectInvalid(group + "brokers = [\"a:1\"]\n", "", {"shared_group", "level 2 on Redis"});
  if (!MakeRedisTier({}).ok()) GTEST_SKIP() << "this build has no Redis client";
  const std::string redis = "[l2]\nkind = \"redis\"\n";
  ExpectInvalid(redis + group, "", {"shared_group", "update.brokers"});
  ExpectInvalid(redis + group + "brokers = [\"a:1\"]\ngroup = \"g\"\n", "",
                {"shared_group is update.group"});
  const auto config = Load(redis + group + "brokers = [\"a:1\"]\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->update.shared_group, "g");
}

TEST_F(ConfigTest, TheSettingsOfKafkaHaveNamesOfTheirOwn) {
  const auto config = Load(
      "[update]\nbrokers = [\"a:9092\", \"b:9092\"]\ntables = [\"m/*\"]\n[update.kafka]\n"
      "sasl.username = \"me\"\n\"sasl.password\" = \"hidden\"\nsession.timeout.ms = 6000\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->update.brokers, (std::vector<std::string>{"a:9092", "b:9092"}));
  EXPECT_EQ(
      config->update.kafka,
      (std::map<std::string, std::string>{
          {"sasl.username", "me"}, {"sasl.password", "hidden"}, {"session.timeout.ms", "6000"}}));
  const std::string printed = PrintConfig(*config);
  EXPECT_THAT(printed, HasSubstr("update.kafka.sasl.username = \"me\"  # " + path_ + ":5\n"));
  EXPECT_THAT(printed, HasSubstr("update.kafka.sasl.password = \"***\""));
  EXPECT_THAT(printed, Not(HasSubstr("hidden")));
  ExpectInvalid("[update.kafka]\ngroup.id = \"g\"\n", "2:12", {"'group.id' can't be set"});
  ExpectInvalid("[update.kafka]\nx = 1.5\n", "2:5", {"update.kafka.x"});
  ExpectInvalid("[update]\nkafka = 1\n", "2:9", {"is a section"});
  ExpectInvalid("[update]\nbrokers = [\"a b\"]\n", "2:11", {"without blanks"});
  ExpectError("[update.kafka]\nx = \"env:HPS_NO_SUCH_VARIABLE\"\n", absl::StatusCode::kNotFound,
              "2:5", {"HPS_NO_SUCH_VARIABLE"});
}

TEST_F(ConfigTest, AnOldNameIsReadWithAWarning) {
  const LogCounts before = CountLogLines();
  const auto config = Load("[l2]\noverflow_margin = 0.8\nresolution_target = 0.7\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->l2.evict_from, 0.8);
  EXPECT_EQ(config->l2.evict_to, 0.7);
  constexpr auto kWarning = static_cast<size_t>(LogLevel::kWarning);
  const LogCounts after = CountLogLines();
  EXPECT_EQ(after.written[kWarning] + after.left_out,
            before.written[kWarning] + before.left_out + 2);
  EXPECT_THAT(PrintConfig(*config), HasSubstr("l2.evict_from = 0.8  # " + path_ + ":2\n"));
  ExpectInvalid("[l2]\noverflow_margin = 2.0\n", "2:19", {"l2.evict_from = 2.0", "0.01 to 1.0"});
  ExpectInvalid("[l2]\nevict_from = 0.9\noverflow_margin = 0.9\n", "3:1",
                {"'l2.evict_from' is given twice", "'l2.overflow_margin'"});
}

// Whatever its value, and whether or not Redis is in use.
TEST_F(ConfigTest, ARetiredSettingIsRefusedWithWhatToDo) {
  for (const std::string value : {"\"v1\"", "\"\"", "3"}) {
    EXPECT_EQ(Load("[l2.redis]\nnodes = [\"a:1\"]\nhugectr_import_id = " + value + "\n").status(),
              absl::InvalidArgumentError(
                  path_ +
                  ":3:1: l2.redis.hugectr_import_id: hps does not answer from HugeCTR's Redis any "
                  "more: import the tables with `hps import --config FILE --model MODEL --from "
                  "redis://HOST:PORT --partitions N`, and remove this setting together with "
                  "HugeCTR's servers in [l2.redis] nodes, to which hps would write rows of its own "
                  "(docs/from_hugectr.md)"));
  }
  ExpectInvalid("[l2]\nhugectr_import_id = \"v1\"\n", "2:1",
                {"unknown setting 'l2.hugectr_import_id'"});
}

TEST_F(ConfigTest, TheFileItself) {
  EXPECT_EQ(LoadConfig(directory_ + "/none.toml").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadConfig(directory_ + "/none/none.toml").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadConfig(directory_).status().code(), absl::StatusCode::kInvalidArgument);
  // Catches: waiting for a pipe without a writer.
  const std::string pipe = directory_ + "/pipe.toml";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(
      LoadConfig(pipe).status(),
      absl::InvalidArgumentError(
          pipe + ": expected a regular file, found something else (a pipe, device or socket)"));
  const absl::Status too_large = Load(std::string(kConfigBytesMax + 1, '\n')).status();
  EXPECT_EQ(too_large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_large.message()), HasSubstr("at most"));
  EXPECT_TRUE(Load(std::string(kConfigBytesMax, '\n')).ok());
  const absl::Status json = Load("\n {\"models\": []}").status();
  EXPECT_EQ(json.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(json.message()),
              HasSubstr(path_ + ": expected TOML, found JSON; `hps convert-config`"));
}

TEST_F(ConfigTest, ValuesSetInCodeAreCheckedToo) {
  Config config;
  EXPECT_TRUE(ValidateConfig(config).ok());
  config.lookup.hit_rate_threshold = 2;
  EXPECT_EQ(ValidateConfig(config).code(), absl::StatusCode::kInvalidArgument);
  config = Config();
  config.l1 = {.devices_auto = false, .devices = {1, 1}};
  EXPECT_EQ(ValidateConfig(config).code(), absl::StatusCode::kInvalidArgument);
  config.l1.devices.resize(kCachesMax + 1);
  std::iota(config.l1.devices.begin(), config.l1.devices.end(), 0);
  EXPECT_EQ(ValidateConfig(config).code(), absl::StatusCode::kInvalidArgument);
  config = Config();
  config.model.emplace_back();
  EXPECT_EQ(ValidateConfig(config).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ConfigTest, WhatIsPrintedReadsBack) {
  auto config = Load(
      "[store]\npath = \"a \\\"b\\\" \\\\ c\"\n[l2]\npreload = 0.125\n"
      "[lookup]\ntimeout = \"1500us\"\n[[model]]\nname = \"m\"\ntables = [\"x\"]\n"
      "[[model.table]]\nname = \"x\"\nl2_bytes = 4096\n");
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string printed = PrintConfig(*config);
  EXPECT_THAT(printed, HasSubstr("l2.preload = 0.125  # " + path_ + ":4\n"));
  EXPECT_THAT(printed, HasSubstr("store.sync = \"interval\"  # default\n"));
  const auto again = Load(printed);
  ASSERT_TRUE(again.ok()) << again.status();
  // The origins differ: all of them are the file now.
  auto without_origin = [](Config c) {
    c.origin.clear();
    return PrintConfig(c);
  };
  EXPECT_EQ(without_origin(*again), without_origin(*config));
  EXPECT_EQ(again->store.path, config->store.path);
}

// Catches: a relative path printed unchanged, which means another directory in another file.
TEST_F(ConfigTest, WhatIsPrintedMeansTheSameAnywhere) {
  const std::string odd = directory_ + "/a \"b\" \\ # '\n\t";
  std::filesystem::create_directories(odd);
  const std::string file = odd + "/hps.toml";
  std::ofstream(file) << "[store]\npath = \"../rows\\n\\\"\"\n";
  const auto config = LoadConfig(file);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->store.path, directory_ + "/rows\n\"");
  const auto again = Load(PrintConfig(*config));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->store.path, config->store.path);

  Config code;
  code.store.path = "below/here";
  const auto read = Load(PrintConfig(code));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->store.path, (std::filesystem::current_path() / "below/here").string());
}

TEST_F(ConfigTest, BudgetsInBytesMustFitTogether) {
  const std::string text =
      "[l2]\nbytes_max = 100\n[[model]]\nname = \"m\"\n"
      "[[model.table]]\nname = \"t\"\nl2_bytes = 60\n"
      "[[model.table]]\nname = \"u\"\nl2_bytes = ";
  EXPECT_TRUE(Load(text + "40\n").ok());
  ExpectInvalid(text + "41\n", "", {"model 'm', table 'u'", "41B", "100B", "40B left"});
  // Catches: budgets that exceed level 1 and are cut silently.
  const std::string l1 =
      "[l1]\nbytes_max = 100\n[[model]]\nname = \"m\"\n[[model.table]]\nname = \"t\"\n"
      "l1_bytes = 60\n[[model]]\nname = \"n\"\n[[model.table]]\nname = \"t\"\nl1_bytes = ";
  EXPECT_TRUE(Load(l1 + "40\n").ok());
  ExpectInvalid(l1 + "41\n", "", {"model 'n', table 't'", "l1_bytes = 41B", "l1.bytes_max", "40B"});
}

}  // namespace
}  // namespace hps
