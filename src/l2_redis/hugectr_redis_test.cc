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
#include "l2_redis/test_redis.h"
#include "testing/test_directory.h"
#include "tier/redis_tier.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Duration kTimeout = std::chrono::seconds(20);
constexpr Duration kPatience = std::chrono::seconds(60);

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
  // Puts keys [0, count) into the partition's hash of a server, and their times, as HugeCTR does.
  static void Fill(TestRedis& redis, size_t server, const std::string& table, uint32_t partition,
                   Key count) {
    const std::string hash = HugectrHashName(table, partition);
    std::string times = hash;
    times.back() = 't';
    for (Key key = 0; key < count; ++key) {
      redis.Ask(server, {"HSET", hash, HugectrTestKey(key), HugectrTestRow(key)});
      if (key == 0) redis.Ask(server, {"HSET", times, HugectrTestKey(key), "12345678"});
    }
  }

  // The same, faster, for many keys: a script writes them.
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

  static void ExpectRows(const Collector& collector, Key count) {
    ASSERT_EQ(collector.rows().size(), static_cast<size_t>(count));
    for (Key key = 0; key < count; ++key)
      ASSERT_EQ(collector.rows().at(HugectrTestKey(key)), HugectrTestRow(key)) << key;
  }
};

TEST_F(HugectrRedisTest, ReadsTheTablesOfOneServer) {
  TestRedis redis({});
  Fill(redis, 0, "m/t", 0, 5);
  Fill(redis, 0, "m/t", 7, 1);
  Fill(redis, 0, "other/u", 3, 2);
  redis.Ask(0, {"SET", "hps_et{hps_et.m.x/p0}w", "no table"});
  auto opened = HugectrRedis::Open(OptionsFor(redis.addresses()[0]));
  ASSERT_TRUE(opened.ok()) << opened.status();
  HugectrRedis& tables = **opened;
  EXPECT_THAT(tables.tables(), ElementsAre("m/t", "other/u"));
  EXPECT_EQ(*tables.PartCount("m/t"), 8u);
  Collector collector;
  for (const auto& [part, count] : std::map<uint32_t, Key>{{0, 5}, {1, 0}, {7, 1}}) {
    ASSERT_TRUE(tables.ReadPart("m/t", part, collector).ok());
    ExpectRows(collector, count);
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
  auto tables = HugectrRedis::Open(OptionsFor(redis.addresses()[0]));
  ASSERT_TRUE(tables.ok()) << tables.status();
  Collector collector;
  ASSERT_TRUE((*tables)->ReadPart("m/t", 0, collector).ok());
  ExpectRows(collector, 100'000);
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
  Fill(redis, 0, "m/t", 8, 1);
  const auto more = open();
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ((*more)->PartCount("m/t").status(),
            absl::InvalidArgumentError(absl::StrCat(
                "redis://", redis.addresses()[0],
                ", table 'm/t': expected 8 partitions, found number 8 (counted from 0): give "
                "--partitions the num_partitions of HugeCTR HPS")));
  redis.Ask(0, {"SET", HugectrHashName("m/t", 1), "a string"});
  Collector collector;
  const absl::Status type = (*more)->ReadPart("m/t", 1, collector);
  EXPECT_EQ(type.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(type.message()), HasSubstr("WRONGTYPE"));
  redis.Ask(0, {"SET", "hps_et{hps_et.m/p0}v", "a string"});
  EXPECT_THAT(std::string(open().status().message()),
              HasSubstr("'hps_et{hps_et.m/p0}v' is not named hps_et{hps_et.MODEL.TABLE/pN}v"));
}

// Any node of the cluster is given; the others are found, and each hash at its owner.
TEST_F(HugectrRedisTest, ReadsTheTablesOfACluster) {
  TestRedis redis({.count = 3, .cluster = true});
  std::vector<size_t> owned(3);
  for (uint32_t part = 0; part < 8; ++part) {
    const size_t owner = HugectrTestOwner(redis, HugectrHashName("m/t", part));
    ++owned[owner];
    Fill(redis, owner, "m/t", part, part + 1);
  }
  EXPECT_THAT(owned, testing::Each(testing::Gt(0u)));
  for (const std::string& address : redis.addresses()) {
    auto tables = HugectrRedis::Open(OptionsFor(address));
    ASSERT_TRUE(tables.ok()) << tables.status();
    EXPECT_THAT((*tables)->tables(), ElementsAre("m/t"));
    for (uint32_t part = 0; part < 8; ++part) {
      Collector collector;
      ASSERT_TRUE((*tables)->ReadPart("m/t", part, collector).ok());
      ExpectRows(collector, part + 1);
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
  auto tables = HugectrRedis::Open(OptionsFor(redis.addresses()[(from + 2) % 3]));
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
  ExpectRows(collector, 50'000);
  EXPECT_EQ(collector.begins(), 2u);
  for (const size_t server : {to, from, (from + 2) % 3})
    redis.Ask(server, {"CLUSTER", "SETSLOT", slot, "NODE", to_id});
  ASSERT_TRUE((*tables)->ReadPart("m/t", 0, collector).ok());
  ExpectRows(collector, 50'000);
}

// A cursor means nothing to the next run of the server.
TEST_F(HugectrRedisTest, AServerThatRestartsIsReadFromTheBeginning) {
  TestRedis redis({.settings = {"appendonly=yes", "appendfsync=always"}});
  const std::string hash = HugectrHashName("m/t", 0);
  FillMany(redis, 0, hash, 50'000);
  auto tables = HugectrRedis::Open(OptionsFor(redis.addresses()[0]));
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
  ExpectRows(collector, 50'000);
  EXPECT_GE(collector.begins(), 2u);
}

TEST_F(HugectrRedisTest, AServerThatIsGoneIsGivenUp) {
  TestRedis redis({});
  Fill(redis, 0, "m/t", 0, 1);
  HugectrRedis::Options options = OptionsFor(redis.addresses()[0]);
  options.retry_for = std::chrono::milliseconds(300);
  auto tables = HugectrRedis::Open(options);
  ASSERT_TRUE(tables.ok()) << tables.status();
  redis.Kill(0);
  // A caller that is paused after its first try has no time left for another one.
  const TimePoint end = RealClock().Now() + kPatience;
  size_t tries = 0;
  while (tries < 2) {
    ASSERT_LT(RealClock().Now(), end);
    Collector collector;
    const absl::Status gone = (*tables)->ReadPart("m/t", 0, collector);
    EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(gone.message()), HasSubstr(redis.addresses()[0]));
    tries = collector.begins();
  }
  EXPECT_EQ(HugectrRedis::Open(options).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(HugectrRedisTest, AServerThatHangsIsGivenUp) {
  TestRedis redis({});
  Fill(redis, 0, "m/t", 0, 1);
  HugectrRedis::Options options = OptionsFor(redis.addresses()[0]);
  options.timeout = std::chrono::milliseconds(300);
  options.retry_for = std::chrono::milliseconds(300);
  redis.Pause(0);
  EXPECT_EQ(HugectrRedis::Open(options).status().code(), absl::StatusCode::kDeadlineExceeded);
  redis.Resume(0);
}

TEST_F(HugectrRedisTest, LogsInWithUserAndPassword) {
  TestRedis redis({});
  Fill(redis, 0, "m/t", 0, 3);
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
  ExpectRows(collector, 3);
}

TEST_F(HugectrRedisTest, ConnectsByTls) {
  TestRedis redis({.tls = true});
  Fill(redis, 0, "m/t", 0, 3);
  HugectrRedisSource source = {.url = "rediss://" + redis.addresses()[0]};
  EXPECT_EQ(OpenHugectrRedis(source).status().code(), absl::StatusCode::kUnauthenticated);
  source.connection.tls_ca = redis.Certificate("ca.pem");
  const auto tables = OpenHugectrRedis(source);
  ASSERT_TRUE(tables.ok()) << tables.status();
  Collector collector;
  ASSERT_TRUE((*tables)->ReadPart("m/t", 0, collector).ok());
  ExpectRows(collector, 3);
  source.connection.tls_ca = redis.Certificate("missing.pem");
  EXPECT_EQ(OpenHugectrRedis(source).status().code(), absl::StatusCode::kFailedPrecondition);
  source.url = "http://" + redis.addresses()[0];
  EXPECT_EQ(OpenHugectrRedis(source).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hps
