// Where level 2 is, and the settings of its part in Redis; see hps/config.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace hps {

// "memory", "redis", "memory+redis", "none"
enum class L2Kind { kMemory, kRedis, kMemoryRedis, kNone };

// Whether level 2 has a part in this process's memory, and whether it has one in Redis.
inline bool HasMemory(L2Kind kind) {
  return kind == L2Kind::kMemory || kind == L2Kind::kMemoryRedis;
}
inline bool HasRedis(L2Kind kind) { return kind == L2Kind::kRedis || kind == L2Kind::kMemoryRedis; }

// Level 2 on Redis (docs/redis.md).
struct RedisConfig {
  std::vector<std::string> nodes = {"127.0.0.1:6379"};  // of a cluster, some; else exactly one
  bool cluster = false;
  std::string user;           // of the server's ACL; empty = its default user
  std::string password_file;  // one line, read for every new connection; empty = none
  bool tls = false;
  std::string tls_ca;           // PEM; empty = the certificates that the system trusts
  std::string tls_certificate;  // PEM, of this client, with tls_key; empty = none
  std::string tls_key;
  std::string tls_server_name;  // in the servers' certificates; empty = the host of the address
  std::string key_prefix = "hps";
  uint32_t connections_per_node = 4;
  bool replica_reads = false;  // of a cluster: fetch from replicas, where there are any
  uint32_t partitions = 0;     // of each table, spread over a cluster's slots; 0 = 64
  std::chrono::nanoseconds timeout = std::chrono::milliseconds(100);  // of each wait for a node
  std::chrono::nanoseconds write_timeout{0};  // of each change or insertion; 0 = 10 x timeout
  std::chrono::nanoseconds expire_after{0};   // of a row; 0 = never
};

}  // namespace hps
