// Real Redis servers for tests, and what an operator does with them.
//
//   TestRedis redis({.count = 3, .cluster = true});
//   auto tier = MakeRedisTier(redis.Config());
//
// The servers are processes that tools/redis/servers.py starts and stops; they end with the test.
// What fails here ends the test program: nothing can be tested without servers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "hps/config.h"
#include "l2_redis/redis_node.h"
#include "testing/test_server_program.h"

namespace hps {

class TestRedis {
 public:
  struct Options {
    size_t count = 1;
    bool cluster = false;
    size_t replicas = 0;
    std::vector<std::string> settings;  // "name=value"
    bool tls = false;                   // by TLS only
  };

  explicit TestRedis(const Options& options);

  // For tables on these servers: with a time-out that a busy machine keeps.
  RedisConfig Config() const;
  // With TLS: a file of tools/redis/servers.py, make_certificates.
  std::string Certificate(const std::string& file) const { return directory_ + "/" + file; }
  const std::vector<std::string>& addresses() const { return addresses_; }

  void Kill(size_t server) { Command("kill", server); }      // SIGKILL
  void Stop(size_t server) { Command("stop", server); }      // SIGTERM; returns when it has ended
  void Start(size_t server) { Command("start", server); }    // returns when it answers
  void Pause(size_t server) { Command("pause", server); }    // SIGSTOP
  void Resume(size_t server) { Command("resume", server); }  // SIGCONT

  // Sends a command; returns its reply, which must not be an error.
  Reply Ask(size_t server, std::initializer_list<std::string_view> parts);
  // How often each server has read from clients since the last call; what this function itself
  // costs is not counted. A small pipeline is one read.
  std::vector<uint64_t> TakeReads();

 private:
  void Command(const char* command, size_t server);
  uint64_t ReadsOf(size_t server);

  const Options options_;
  TestServerProgram program_;
  std::vector<std::string> addresses_;
  std::string directory_;
  std::vector<uint64_t> reads_;  // by server, as of the last call of TakeReads
};

}  // namespace hps
