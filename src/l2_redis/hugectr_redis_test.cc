// Tables as HugeCTR HPS lays them out, in real servers.
#include "l2_redis/hugectr_redis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "l2_redis/hugectr_names.h"
#include "l2_redis/slots.h"
#include "l2_redis/test_hugectr.h"
#include "l2_redis/test_proxy.h"
#include "l2_redis/test_redis.h"
#include "testing/await.h"
#include "testing/test_directory.h"
#include "tier/redis_tier.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Duration kTimeout = std::chrono::seconds(20);

// What a part passed, since it began last.
class Collector final : public ForeignRecordSink {
 public:
  void Begin() override {
    ++begins_;
    rows_.clear();
  }
  absl::Status Add(std::string_view key, std::string_view row) override {
    rows_[std::string(key)] = row;
    if (on_add_) on_add_(rows_.size());
    return absl::OkStatus();
  }

  const std::map<std::string, std::string>& rows() const { return rows_; }
  size_t begins() const { return begins_; }
  void OnAdd(std::function<void(size_t)> function) { on_add_ = std::move(function); }

 private:
  std::map<std::string, std::string> rows_;
  size_t begins_ = 0;
  std::function<void(size_t)> on_add_;
};

class HugectrRedisTest : public testing::Test {
 protected:
  // The first keys of a partition.
  static std::vector<Key> KeysOf(uint32_t partition, size_t count, uint32_t partition_count = 8) {
    std::vector<Key> keys;
    for (Key key = 0; keys.size() < count; ++key)
      if (HugectrPartition(key, partition_count) == partition) keys.push_back(key);
    return keys;
  }

  // Puts the first keys of the partition where HugeCTR puts them, and a time.
  static void Fill(TestRedis& redis, const std::string& table, uint32_t partition, size_t count,
                   uint32_t partition_count = 8) {
    const std::string hash = HugectrHashName(table, partition);
    const size_t owner = HugectrTestOwner(redis, hash);
    std::string times = hash;
    times.back() = 't';
    for (const Key key : KeysOf(partition, count, partition_count))
      redis.Ask(owner, {"HSET", hash, HugectrTestKey(key), HugectrTestRow(key)});
    redis.Ask(owner, {"HSET", times, HugectrTestKey(0), "12345678"});
  }
  // All partitions of 8, with three keys each.
  static void FillAll(TestRedis& redis, const std::string& table) {
    for (uint32_t part = 0; part < 8; ++part) Fill(redis, table, part, 3);
  }

  // Keys [0, count), faster: a script writes them. For tables of one partition.
  static void FillMany(TestRedis& redis, size_t server, const std::string& hash, Key count) {
    constexpr std::string_view kScript =
        "for i = 0, tonumber(ARGV[1]) - 1 do "
        "redis.call('HSET', KEYS[1], struct.pack('<i8', i), struct.pack('<ffff', i, 0, 0, 0)) end";
    redis.Ask(server, {"EVAL", kScript, "1", hash, absl::StrCat(count)});
  }

  static HugectrRedis::Options OptionsFor(const std::string& address) {
    return {.url = "redis://" + address,
            .address = *ParseRedisAddress(address),
            .credentials = {},
            .partition_count = 8,
            .timeout = kTimeout,
            .retry_for = std::chrono::seconds(60)};
  }

  static HugectrRedis::Options OnePartition(const std::string& address) {
    HugectrRedis::Options options = OptionsFor(address);
    options.partition_count = 1;
    return options;
  }

  static void ExpectRows(const Collector& collector, const std::vector<Key>& keys) {
    ASSERT_EQ(collector.rows().size(), keys.size());
    for (const Key key : keys)
      ASSERT_EQ(collector.rows().at(HugectrTestKey(key)), HugectrTestRow(key)) << key;
  }
  static void ExpectMany(const Collector& collector, size_t count) {
    ExpectRows(collector, KeysOf(0, count, 1));
  }

  // Waits until an import has asked the server for its list.
  static ::testing::AssertionResult AwaitScan(TestRedis& redis, size_t server) {
    return AwaitCondition([&] {
      return redis.Ask(server, {"INFO", "commandstats"}).text.find("cmdstat_scan:") !=
             std::string::npos;
    });
  }
};

TEST_F(HugectrRedisTest, ReadsTheTablesOfOneServer) {
  TestRedis redis({});
  Fill(redis, "m/t", 0, 5);
  Fill(redis, "m/t", 7, 1);
  Fill(redis, "other/u", 3, 2);
  redis.Ask(0, {"SET", "hps_et{hps_et.m.x/p0}w", "no table"});
  auto opened = HugectrRedis::Open(OptionsFor(redis.addresses()[0]));
  ASSERT_TRUE(opened.ok()) << opened.status();
  HugectrRedis& tables = **opened;
  EXPECT_THAT(tables.tables(), ElementsAre("m/t", "other/u"));
  EXPECT_EQ(*tables.PartCount("m/t"), 8u);
  Collector collector;
  for (const auto& [part, count] : std::map<uint32_t, size_t>{{0, 5}, {1, 0}, {7, 1}}) {
    ASSERT_TRUE(tables.ReadPart("m/t", part, collector).ok());
    ExpectRows(collector, KeysOf(part, count));
  }
  const absl::Status missing = tables.PartCount("m/u").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("Redis has: m/t, other/u"));
  // Nothing was written, and nothing was asked that holds the server up.
  const std::string commands = redis.Ask(0, {"INFO", "commandstats"}).text;
  for (const char* command : {"_keys:", "_hgetall:", "_hkeys:"})
    EXPECT_THAT(commands, testing::Not(HasSubstr(command)));
  EXPECT_EQ(redis.Ask(0, {"DBSIZE"}).integer, 7);
}

TEST_F(HugectrRedisTest, ALargeHashComesInPieces) {
  TestRedis redis({});
  const std::string hash = HugectrHashName("m/t", 0);
  FillMany(redis, 0, hash, 100'000);
  auto tables = HugectrRedis::Open(OnePartition(redis.addresses()[0]));
  ASSERT_TRUE(tables.ok()) << tables.status();
  Collector collector;
  ASSERT_TRUE((*tables)->ReadPart("m/t", 0, collector).ok());
  ExpectMany(collector, 100'000);
  EXPECT_EQ(collector.begins(), 1u);
  const std::string commands = redis.Ask(0, {"INFO", "commandstats"}).text;
  const size_t at = commands.find("cmdstat_hscan:calls=");
  ASSERT_NE(at, std::string::npos);
  const uint64_t calls = std::strtoull(&commands[at + 20], nullptr, 10);
  EXPECT_GE(calls, 100'000u / 4096 / 2);
  EXPECT_LE(calls, 200u);
}

TEST_F(HugectrRedisTest, RefusesWhatItCanNotReadWhole) {
  TestRedis redis({});
  const auto open = [&] { return HugectrRedis::Open(OptionsFor(redis.addresses()[0])); };
  EXPECT_EQ(open().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(open().status().message()), HasSubstr("found none"));
  Fill(redis, "m/t", 8, 1, 9);
  const auto more = open();
  ASSERT_TRUE(more.ok()) << more.status();
  const absl::Status count = (*more)->PartCount("m/t").status();
  EXPECT_EQ(count.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(count.message()),
              HasSubstr(absl::StrCat("redis://", redis.addresses()[0],
                                     ", table 'm/t': expected 8 partitions, found "
                                     "'hps_et{hps_et.m.t/p8}v'. Give --partitions")));
  redis.Ask(0, {"SET", HugectrHashName("m/t", 1), "a string"});
  Collector collector;
  const absl::Status type = (*more)->ReadPart("m/t", 1, collector);
  EXPECT_EQ(type.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(type.message()), HasSubstr("WRONGTYPE"));
  redis.Ask(0, {"SET", "hps_et{hps_et.m/p0}v", "a string"});
  EXPECT_THAT(std::string(open().status().message()),
              HasSubstr("'hps_et{hps_et.m/p0}v' is not named hps_et{hps_et.MODEL.TABLE/pN}v"));
}

// A table that was written by 4 partitions, then by 8: its old rows must not be taken for current
// ones. Or by 8, and read as one of 16.
TEST_F(HugectrRedisTest, AKeyOfAnotherPartitionIsRefused) {
  TestRedis redis({});
  FillAll(redis, "m/t");
  HugectrRedis::Options options = OptionsFor(redis.addresses()[0]);
  for (const uint32_t partition_count : {8U, 16U}) {
    options.partition_count = partition_count;
    auto tables = HugectrRedis::Open(options);
    ASSERT_TRUE(tables.ok()) << tables.status();
    size_t refused = 0;
    for (uint32_t part = 0; part < 8; ++part) {
      Collector collector;
      const absl::Status read = (*tables)->ReadPart("m/t", part, collector);
      if (!read.ok()) ++refused;
      EXPECT_TRUE(read.ok() || absl::IsInvalidArgument(read)) << read;
    }
    EXPECT_EQ(refused > 0, partition_count == 16) << refused;
  }
  Key left = 0;  // where 4 partitions have it and 8 have not
  while (HugectrPartition(left, 4) == HugectrPartition(left, 8)) ++left;
  const uint32_t part = HugectrPartition(left, 4);
  const std::string hash = HugectrHashName("m/t", part);
  redis.Ask(0, {"HSET", hash, HugectrTestKey(left), HugectrTestRow(-1)});
  auto tables = HugectrRedis::Open(OptionsFor(redis.addresses()[0]));
  ASSERT_TRUE(tables.ok()) << tables.status();
  Collector collector;
  const absl::Status read = (*tables)->ReadPart("m/t", part, collector);
  EXPECT_EQ(read.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(collector.begins(), 1u) << "another attempt would not help";
  EXPECT_THAT(
      std::string(read.message()),
      HasSubstr(absl::StrCat("table 'm/t', hash '", hash, "': key ", left, " is in partition ",
                             part, " and belongs into ", part + 4, " of 8. Give --partitions")));
}

// Any node of the cluster is given; the others are found, and each hash at its owner.
TEST_F(HugectrRedisTest, ReadsTheTablesOfACluster) {
  TestRedis redis({.count = 3, .cluster = true});
  std::vector<size_t> owned(3);
  for (uint32_t part = 0; part < 8; ++part) {
    const size_t owner = HugectrTestOwner(redis, HugectrHashName("m/t", part));
    ++owned[owner];
    Fill(redis, "m/t", part, part + 1);
  }
  EXPECT_THAT(owned, testing::Each(testing::Gt(0u)));
  for (const std::string& address : redis.addresses()) {
    auto tables = HugectrRedis::Open(OptionsFor(address));
    ASSERT_TRUE(tables.ok()) << tables.status();
    EXPECT_THAT((*tables)->tables(), ElementsAre("m/t"));
    for (uint32_t part = 0; part < 8; ++part) {
      Collector collector;
      ASSERT_TRUE((*tables)->ReadPart("m/t", part, collector).ok());
      ExpectRows(collector, KeysOf(part, part + 1));
    }
  }
  redis.Ask(1, {"CLUSTER", "DELSLOTS", "6000"});
  const absl::Status hole = HugectrRedis::Open(OptionsFor(redis.addresses()[1])).status();
  EXPECT_EQ(hole.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(hole.message()), HasSubstr("1 hash slots of the cluster have no server"));
}

// The slot moves while its hash is read, and stays half moved: the owner says ASK.
TEST_F(HugectrRedisTest, AHashThatMovesIsReadAgainWhereItIs) {
  TestRedis redis({.count = 3, .cluster = true});
  const std::string hash = HugectrHashName("m/t", 0);
  const std::string slot = absl::StrCat(RedisSlotOf(hash));
  const size_t from = HugectrTestOwner(redis, hash);
  const size_t to = (from + 1) % 3;
  FillMany(redis, from, hash, 50'000);
  const std::string from_id = redis.Ask(from, {"CLUSTER", "MYID"}).text;
  const std::string to_id = redis.Ask(to, {"CLUSTER", "MYID"}).text;
  const std::string& to_address = redis.addresses()[to];
  const std::string port = to_address.substr(to_address.rfind(':') + 1);
  auto tables = HugectrRedis::Open(OnePartition(redis.addresses()[(from + 2) % 3]));
  ASSERT_TRUE(tables.ok()) << tables.status();
  Collector collector;
  collector.OnAdd([&](size_t count) {
    if (count != 10'000 || collector.begins() != 1) return;
    redis.Ask(to, {"CLUSTER", "SETSLOT", slot, "IMPORTING", from_id});
    redis.Ask(from, {"CLUSTER", "SETSLOT", slot, "MIGRATING", to_id});
    redis.Ask(from, {"MIGRATE", "127.0.0.1", port, hash, "0", "20000"});
  });
  const absl::Status read = (*tables)->ReadPart("m/t", 0, collector);
  ASSERT_TRUE(read.ok()) << read;
  ExpectMany(collector, 50'000);
  EXPECT_EQ(collector.begins(), 2u);
  for (const size_t server : {to, from, (from + 2) % 3})
    redis.Ask(server, {"CLUSTER", "SETSLOT", slot, "NODE", to_id});
  ASSERT_TRUE((*tables)->ReadPart("m/t", 0, collector).ok());
  ExpectMany(collector, 50'000);
}

// A cursor means nothing to the next run of the server.
TEST_F(HugectrRedisTest, AServerThatRestartsIsReadFromTheBeginning) {
  TestRedis redis({.settings = {"appendonly=yes", "appendfsync=always"}});
  const std::string hash = HugectrHashName("m/t", 0);
  FillMany(redis, 0, hash, 50'000);
  auto tables = HugectrRedis::Open(OnePartition(redis.addresses()[0]));
  ASSERT_TRUE(tables.ok()) << tables.status();
  Collector collector;
  std::thread restart;
  collector.OnAdd([&](size_t count) {
    if (count != 10'000 || collector.begins() != 1) return;
    redis.Kill(0);
    restart = std::thread([&] { redis.Start(0); });
  });
  const absl::Status read = (*tables)->ReadPart("m/t", 0, collector);
  restart.join();
  ASSERT_TRUE(read.ok()) << read;
  ExpectMany(collector, 50'000);
  EXPECT_GE(collector.begins(), 2u);
}

// A server is down when its tables are listed, and comes back.
TEST_F(HugectrRedisTest, AServerThatComesBackIsListed) {
  TestRedis redis(
      {.count = 3, .cluster = true, .settings = {"appendonly=yes", "appendfsync=always"}});
  FillAll(redis, "m/t");
  redis.Kill(2);
  std::thread start([&] {
    EXPECT_TRUE(AwaitScan(redis, 0));
    redis.Start(2);
  });
  const auto tables = HugectrRedis::Open(OptionsFor(redis.addresses()[1]));
  start.join();
  ASSERT_TRUE(tables.ok()) << tables.status();
  for (uint32_t part = 0; part < 8; ++part) {
    Collector collector;
    ASSERT_TRUE((*tables)->ReadPart("m/t", part, collector).ok());
    ExpectRows(collector, KeysOf(part, 3));
  }
}

// The only hash is at a master that ends: the replica that takes its place has it.
TEST_F(HugectrRedisTest, AReplicaThatTakesAMastersPlaceIsListed) {
  TestRedis redis(
      {.count = 6, .cluster = true, .replicas = 1, .settings = {"cluster-node-timeout=3000"}});
  const std::string hash = HugectrHashName("m/t", 0);
  const size_t owner = RedisSlotOf(hash) * 3 / kRedisSlotCount;
  for (const Key key : KeysOf(0, 3))
    redis.Ask(owner, {"HSET", hash, HugectrTestKey(key), HugectrTestRow(key)});
  ASSERT_GE(redis.Ask(owner, {"WAIT", "1", "20000"}).integer, 1);
  redis.Kill(owner);
  const auto tables = HugectrRedis::Open(OptionsFor(redis.addresses()[(owner + 1) % 3]));
  ASSERT_TRUE(tables.ok()) << tables.status();
  EXPECT_THAT((*tables)->tables(), ElementsAre("m/t"));
  Collector collector;
  ASSERT_TRUE((*tables)->ReadPart("m/t", 0, collector).ok());
  ExpectRows(collector, KeysOf(0, 3));
}

TEST_F(HugectrRedisTest, AListWithoutAnEndIsRefused) {
  TestRedis redis({});
  Fill(redis, "m/t", 0, 1);
  TestProxy proxy(redis.addresses()[0]);
  proxy.Set({.instead = "*2\r\n$1\r\n7\r\n*0\r\n", .instead_of = "SCAN"});
  const absl::Status endless = HugectrRedis::Open(OptionsFor(proxy.address())).status();
  EXPECT_EQ(endless.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(endless.message()),
              HasSubstr(proxy.address() + ": SCAN did not end within 10000 replies, and the server "
                                          "says that it has 2 keys"));
}

TEST_F(HugectrRedisTest, AServerThatIsGoneIsGivenUp) {
  TestRedis redis({});
  Fill(redis, "m/t", 0, 1);
  HugectrRedis::Options options = OptionsFor(redis.addresses()[0]);
  options.retry_for = std::chrono::milliseconds(300);
  auto tables = HugectrRedis::Open(options);
  ASSERT_TRUE(tables.ok()) << tables.status();
  redis.Kill(0);
  // A caller that is paused after its first try has no time left for another one.
  ASSERT_TRUE(AwaitCondition([&] {
    Collector collector;
    const absl::Status gone = (*tables)->ReadPart("m/t", 0, collector);
    EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(gone.message()), HasSubstr(redis.addresses()[0]));
    return HasFailure() || collector.begins() >= 2;
  }));
  EXPECT_EQ(HugectrRedis::Open(options).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(HugectrRedisTest, AServerThatHangsIsGivenUp) {
  TestRedis redis({});
  Fill(redis, "m/t", 0, 1);
  HugectrRedis::Options options = OptionsFor(redis.addresses()[0]);
  options.timeout = std::chrono::milliseconds(300);
  options.retry_for = std::chrono::milliseconds(300);
  redis.Pause(0);
  EXPECT_EQ(HugectrRedis::Open(options).status().code(), absl::StatusCode::kDeadlineExceeded);
  redis.Resume(0);
}

TEST_F(HugectrRedisTest, LogsInWithUserAndPassword) {
  TestRedis redis({});
  Fill(redis, "m/t", 0, 3);
  redis.Ask(0, {"ACL", "SETUSER", "importer", "on", ">secret", "~hps_et*", "+auth", "+info",
                "+scan", "+hscan"});
  redis.Ask(0, {"ACL", "SETUSER", "default", "on", ">other", "~*", "+@all"});
  const TestDirectory directory;
  HugectrRedisSource source = {.url = "redis://" + redis.addresses()[0]};
  EXPECT_EQ(OpenHugectrRedis(source).status().code(), absl::StatusCode::kPermissionDenied);
  source.connection.user = "importer";
  source.connection.password_file = directory.Write("password", "wrong\n");
  EXPECT_EQ(OpenHugectrRedis(source).status().code(), absl::StatusCode::kPermissionDenied);
  directory.Write("password", "secret\n");
  const auto tables = OpenHugectrRedis(source);
  ASSERT_TRUE(tables.ok()) << tables.status();
  Collector collector;
  ASSERT_TRUE((*tables)->ReadPart("m/t", 0, collector).ok());
  ExpectRows(collector, KeysOf(0, 3));
}

TEST_F(HugectrRedisTest, ConnectsByTls) {
  TestRedis redis({.tls = true});
  Fill(redis, "m/t", 0, 3);
  HugectrRedisSource source = {.url = "rediss://" + redis.addresses()[0]};
  EXPECT_EQ(OpenHugectrRedis(source).status().code(), absl::StatusCode::kUnauthenticated);
  source.connection.tls_ca = redis.Certificate("ca.pem");
  const auto tables = OpenHugectrRedis(source);
  ASSERT_TRUE(tables.ok()) << tables.status();
  Collector collector;
  ASSERT_TRUE((*tables)->ReadPart("m/t", 0, collector).ok());
  ExpectRows(collector, KeysOf(0, 3));
  source.connection.tls_ca = redis.Certificate("missing.pem");
  EXPECT_EQ(OpenHugectrRedis(source).status().code(), absl::StatusCode::kFailedPrecondition);
  source.url = "http://" + redis.addresses()[0];
  EXPECT_EQ(OpenHugectrRedis(source).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hps
