#include "l2_redis/test_redis.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/macros.h"
#include "l2_redis/command_writer.h"
#include "l2_redis/exchange.h"

namespace hps {
namespace {

void Require(bool holds, const std::string& what) {
  TestServerProgram::Require(holds, "Redis servers", what);
}

std::vector<std::string> CommandLine(const TestRedis::Options& options) {
  std::vector<std::string> words = {HPS_SOURCE_DIRECTORY "/tools/redis/servers.py",
                                    absl::StrCat("--count=", options.count),
                                    absl::StrCat("--replicas=", options.replicas)};
  if (options.cluster) words.push_back("--cluster");
  if (options.tls) words.push_back("--tls");
  for (const std::string& setting : options.settings) words.push_back("--setting=" + setting);
  return words;
}

}  // namespace

TestRedis::TestRedis(const Options& options)
    : options_(options), program_("Redis servers", CommandLine(options)) {
  const std::vector<std::string> parts = absl::StrSplit(program_.ready(), ' ');
  Require(parts.size() == 2, program_.ready());
  addresses_ = absl::StrSplit(parts[0], ',');
  directory_ = parts[1];
}

RedisConfig TestRedis::Config() const {
  RedisConfig config;
  config.nodes = addresses_;
  config.cluster = options_.cluster;
  config.timeout = std::chrono::seconds(20);
  config.tls = options_.tls;
  if (options_.tls) config.tls_ca = Certificate("ca.pem");
  return config;
}

void TestRedis::Command(const char* command, size_t server) {
  HPS_CHECK(server < options_.count);
  program_.Command(command, server);
}

Reply TestRedis::Ask(size_t server, std::initializer_list<std::string_view> parts) {
  RedisCredentials credentials;
  if (options_.tls) {
    credentials.tls = TlsFiles{.ca = Certificate("ca.pem"),
                               .certificate = Certificate("client.pem"),
                               .key = Certificate("client.key")};
  }
  RedisNode node(*ParseRedisAddress(addresses_[server]), credentials, 1);
  std::string command;
  AppendCommand(parts, command);
  auto reply = AskRedis(node, command, DeadlineAfter(RealClock(), std::chrono::seconds(20)));
  Require(reply.ok(), reply.status().ToString());
  return *std::move(reply);
}

uint64_t TestRedis::ReadsOf(size_t server) {
  constexpr std::string_view kName = "total_reads_processed:";
  const std::string statistics = Ask(server, {"INFO", "stats"}).text;
  const size_t found = statistics.find(kName);
  Require(found != std::string::npos, "INFO has no total_reads_processed");
  return std::strtoull(&statistics[found + kName.size()], nullptr, 10);
}

std::vector<uint64_t> TestRedis::TakeReads() {
  std::vector<uint64_t> taken;
  reads_.resize(addresses_.size());
  for (size_t server = 0; server < addresses_.size(); ++server) {
    const uint64_t reads = ReadsOf(server);
    const uint64_t own = ReadsOf(server) - reads;
    taken.push_back(reads - reads_[server] - own);
    reads_[server] = reads + own;
  }
  return taken;
}

}  // namespace hps
