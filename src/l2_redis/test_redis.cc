#include "l2_redis/test_redis.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/macros.h"
#include "l2_redis/command_writer.h"
#include "l2_redis/exchange.h"

extern char** environ;

namespace hps {
namespace {

// Fails the program, and says why.
void Require(bool holds, const std::string& what) {
  if (!holds) std::cerr << "Redis servers of the test: " << what << std::endl;
  HPS_CHECK(holds);
}

}  // namespace

TestRedis::TestRedis(const Options& options) : options_(options) {
  std::array<int, 2> to{}, from{};
  HPS_CHECK(pipe2(to.data(), O_CLOEXEC) == 0 && pipe2(from.data(), O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  HPS_CHECK(posix_spawn_file_actions_init(&actions) == 0);
  HPS_CHECK(posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO) == 0);
  HPS_CHECK(posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO) == 0);
  std::vector<std::string> words = {HPS_SOURCE_DIRECTORY "/tools/redis/servers.py",
                                    absl::StrCat("--count=", options.count),
                                    absl::StrCat("--replicas=", options.replicas)};
  if (options.cluster) words.push_back("--cluster");
  if (options.tls) words.push_back("--tls");
  for (const std::string& setting : options.settings) words.push_back("--setting=" + setting);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int error =
      posix_spawn(&pid_, words[0].c_str(), &actions, nullptr, arguments.data(), environ);
  Require(error == 0, absl::StrCat(words[0], " can't be started"));
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  to_ = fdopen(to[1], "w");
  from_ = fdopen(from[0], "r");
  const std::string line = ReadLine();
  Require(line.starts_with("ready "), line);
  const std::vector<std::string> parts = absl::StrSplit(line, ' ');
  Require(parts.size() == 3, line);
  addresses_ = absl::StrSplit(parts[1], ',');
  directory_ = parts[2];
}

TestRedis::~TestRedis() {
  std::fclose(to_);  // it ends with its input
  std::fclose(from_);
  int status = 0;
  waitpid(pid_, &status, 0);
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

std::string TestRedis::ReadLine() {
  std::array<char, 4096> line{};
  if (std::fgets(line.data(), line.size(), from_) == nullptr) return "ended";
  std::string text(line.data());
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

void TestRedis::Command(const char* command, size_t server) {
  HPS_CHECK(server < options_.count);
  std::fprintf(to_, "%s %zu\n", command, server);
  std::fflush(to_);
  const std::string line = ReadLine();
  Require(line == "done", absl::StrCat(command, " ", server, ": ", line));
}

Reply TestRedis::Ask(size_t server, std::initializer_list<std::string_view> parts) {
  RedisCredentials credentials;
  credentials.tls = {.enabled = options_.tls,
                     .ca = Certificate("ca.pem"),
                     .certificate = Certificate("client.pem"),
                     .key = Certificate("client.key")};
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
