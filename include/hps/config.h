// All settings of hps as values, with the names and defaults of the TOML file.
// docs/configuration.md describes each of them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/log.h"
#include "hps/server_config.h"

namespace hps {

enum class SyncMode { kAlways, kInterval, kNever };  // "always", "interval", "never"
// "memory", "redis", "memory+redis", "none"
enum class L2Kind { kMemory, kRedis, kMemoryRedis, kNone };
enum class EvictionPolicy { kOldest, kLeastUsed, kRandom };  // "oldest", "least_used", "random"

// Whether level 2 has a part in this process's memory, and whether it has one in Redis.
inline bool HasMemory(L2Kind kind) {
  return kind == L2Kind::kMemory || kind == L2Kind::kMemoryRedis;
}
inline bool HasRedis(L2Kind kind) { return kind == L2Kind::kRedis || kind == L2Kind::kMemoryRedis; }

struct StoreConfig {
  std::string path = "store";
  uint64_t cache_bytes = uint64_t{1} << 30;
  uint64_t write_buffer_bytes = uint64_t{256} << 20;
  SyncMode sync = SyncMode::kInterval;
  std::chrono::nanoseconds sync_interval = std::chrono::seconds(1);
  uint64_t free_bytes_min = uint64_t{256} << 20;  // writes are refused with less free disk
};

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
  uint32_t partitions = 64;    // of each table, spread over a cluster's slots
  std::chrono::nanoseconds timeout = std::chrono::milliseconds(100);  // of each wait for a node
  std::chrono::nanoseconds write_timeout{0};  // of each change or insertion; 0 = 10 x timeout
  std::chrono::nanoseconds expire_after{0};   // of a row; 0 = never
};

struct L2Config {
  L2Kind kind = L2Kind::kMemory;
  double preload = 0.0;                    // share of every table that is loaded at start
  RedisConfig redis;                       // if kind has Redis; what follows is for the memory
  uint64_t bytes_max = uint64_t{4} << 30;  // rows and metadata of all tables
  EvictionPolicy eviction = EvictionPolicy::kOldest;
  double evict_from = 0.98;  // eviction starts when a table fills this share of its budget
  double evict_to = 0.9;     // eviction stops at this share
  bool huge_pages = true;    // requested from the operating system; used if available
};

struct L1Config {
  bool devices_auto = true;                // all GPUs that are present; none without a GPU
  std::vector<int> devices{};              // if not devices_auto; each of them must be present
  uint64_t bytes_max = uint64_t{2} << 30;  // per device: rows and metadata of all tables
  double preload = 0.0;                    // share of every table that is loaded at start
  // Concurrent lookups per device. Each has its own buffers: about 50 bytes per key on the device
  // and 55 on the host. 0 = 16. For a server, 0 = max(16, server.lookups / number of devices),
  // reduced if device memory is short.
  uint32_t calls_max = 0;
  uint32_t call_keys_max = uint32_t{1} << 18;       // keys of one lookup, or of a piece of it
  uint64_t call_staging_bytes = uint64_t{8} << 20;  // pinned memory of one lookup for missing rows
};

struct LookupConfig {
  double hit_rate_threshold = 1.0;  // see LookupRequest
  std::chrono::nanoseconds timeout = std::chrono::seconds(1);
};

// The update stream (docs/updates.md). Without brokers there is none.
struct UpdateConfig {
  std::vector<std::string> brokers{};       // "host:port"
  std::vector<std::string> tables = {"*"};  // patterns of MODEL/TABLE, with * and ?
  std::string group;  // the node's consumer group, for lag tools; empty = from host and store
  uint64_t rows_per_second_max = 0;                // 0 = no limit
  uint64_t bytes_per_second_max = 0;               // 0 = no limit
  uint64_t memory_bytes_max = uint64_t{64} << 20;  // of messages that are read and not applied
  uint64_t parked_bytes_max = uint64_t{64} << 20;  // of the file of messages that cannot be applied
  // How long a start waits until changes that the store lost with the power are applied again.
  std::chrono::nanoseconds ready_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds refresh_interval = std::chrono::milliseconds(200);  // of level 1
  std::map<std::string, std::string> kafka{};  // [update.kafka]: settings of librdkafka
  std::string kafka_directory;                 // relative paths of `kafka` are relative to it
};

struct ThreadsConfig {
  uint32_t fetch = 0;    // threads that read from levels that can block; 0 = number of cores
  uint32_t promote = 1;  // threads that insert rows into upper levels after a lookup
  // How long a fetch thread that helped a device lookup spins for the next one.
  std::chrono::nanoseconds helper_spin = std::chrono::microseconds(500);
};

// Budgets of one table. At most one of the two of a level may be set; 0 keeps the table out of it.
struct TableConfig {
  std::string name;                  // without the model's name
  std::optional<double> l2_share{};  // as a share of the table
  std::optional<uint64_t> l2_bytes{};
  std::optional<double> l1_share{};  // of each device
  std::optional<uint64_t> l1_bytes{};
  std::string l1_hot_keys;  // .npy file of keys that level 1 loads at start; empty = none
};

struct ModelConfig {
  std::string name;
  std::vector<std::string> tables{};  // declared order; empty = all, in the order of first import
  std::vector<TableConfig> table{};   // [[model.table]]
  std::string
      dense;  // file of ONNX instead of the imported network, read at each load; empty: none
};

struct Config {
  StoreConfig store;
  L2Config l2;
  L1Config l1;
  LookupConfig lookup;
  ThreadsConfig threads;
  UpdateConfig update;
  ServerConfig server;
  LogConfig log;
  std::vector<ModelConfig> model{};  // empty = all models of the store

  // Set by LoadConfig: where each setting that the file has was read, "l2.bytes_max" ->
  // "hps.toml:4". Settings of models are "model[dlrm].tables", "model[dlrm].table[user].l2_share".
  std::map<std::string, std::string> origin{};
};

// Reads a TOML file. Relative paths in it are relative to the file.
// Errors: NOT_FOUND, PERMISSION_DENIED for the file. INVALID_ARGUMENT, with line and column, for
// invalid TOML, an unknown setting (with the nearest known name), a wrong type or a value out of
// range. UNIMPLEMENTED for a setting that is reserved for a later version or needs a GPU build.
absl::StatusOr<Config> LoadConfig(const std::string& path);

// The checks of LoadConfig, for a configuration made in code. Store::Open calls it.
// Errors: INVALID_ARGUMENT.
absl::Status ValidateConfig(const Config& config);

// The configuration as TOML with one line per setting, and where the value came from:
// `l2.preload = 0.5  # hps.toml:4`. Paths are absolute, so that the result can be stored anywhere
// and read back. (A path that is not UTF-8 cannot be read back, because TOML cannot express it.)
std::string PrintConfig(const Config& config);

}  // namespace hps
