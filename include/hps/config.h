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
#include "hps/redis_config.h"
#include "hps/server_config.h"

namespace hps {

enum class SyncMode { kAlways, kInterval, kNever };          // "always", "interval", "never"
enum class EvictionPolicy { kOldest, kLeastUsed, kRandom };  // "oldest", "least_used", "random"

struct StoreConfig {
  std::string path = "store";
  uint64_t cache_bytes = uint64_t{1} << 30;
  uint64_t write_buffer_bytes = uint64_t{256} << 20;
  SyncMode sync = SyncMode::kInterval;
  std::chrono::nanoseconds sync_interval = std::chrono::seconds(1);
  uint64_t free_bytes_min = uint64_t{256} << 20;  // writes are refused with less free disk
  // When this share of a table's rows has changed, they are merged into new page files; 0 = never.
  double merge_share = 0.1;
  // Bytes per second that a merge reads and writes; 0 = no limit.
  uint64_t merge_bytes_per_second = uint64_t{64} << 20;
};

inline constexpr uint64_t kAutoBytes = UINT64_MAX;  // "auto": a budget that Store::Open chooses

struct L2Config {
  L2Kind kind = L2Kind::kMemory;
  double preload = 0.0;             // share of every table that is loaded at start
  RedisConfig redis;                // if kind has Redis; the settings below are for the memory
  uint64_t bytes_max = kAutoBytes;  // rows and metadata of all tables
  EvictionPolicy eviction = EvictionPolicy::kOldest;
  double evict_from = 0.98;  // eviction starts when a table fills this share of its budget
  double evict_to = 0.9;     // eviction stops at this share
  bool huge_pages = true;    // requested from the operating system; used if available
  // Largest part of bytes_max that is pinned, so that GPUs can read rows in it directly; 0 = none.
  uint64_t pinned_bytes_max = uint64_t{16} << 30;
};

struct L1Config {
  bool devices_auto = true;         // all GPUs that are present; none without a GPU
  std::vector<int> devices{};       // if not devices_auto; each of them must be present
  uint64_t bytes_max = kAutoBytes;  // per device: rows and metadata of all tables
  double preload = 0.0;             // share of every table that is loaded at start
  // Concurrent lookups per device, each with its own buffers. 0 = 16; for a server, 0 = max(16,
  // server.lookups / number of devices), reduced if device memory is short.
  uint32_t calls_max = 0;
  uint32_t call_keys_max = uint32_t{1} << 18;       // keys of one lookup, or of a piece of it
  uint64_t call_staging_bytes = uint64_t{8} << 20;  // of one lookup, for missing rows; it grows
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
  std::string shared_group;  // consumer group in which nodes divide the writing of a shared level 2
  uint64_t rows_per_second_max = 0;                // 0 = no limit
  uint64_t bytes_per_second_max = 0;               // 0 = no limit
  uint64_t memory_bytes_max = uint64_t{64} << 20;  // of messages that are read and not applied
  uint64_t parked_bytes_max = uint64_t{64} << 20;  // of the file of messages that cannot be applied
  // Longest time that a start waits for changes that a power failure took to be applied again.
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

// Budgets of one table. Set at most one of a level's two; 0 keeps the table out of the level.
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
  // ONNX file that replaces the imported network, read at each load; empty = none.
  std::string dense;
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
// range. UNIMPLEMENTED for a setting that this build has no support for (Redis).
absl::StatusOr<Config> LoadConfig(const std::string& path);

// The checks of LoadConfig, for a configuration made in code. Errors: INVALID_ARGUMENT.
absl::Status ValidateConfig(const Config& config);

// The configuration as TOML with one line per setting, and where the value came from:
// `l2.preload = 0.5  # hps.toml:4`. Paths are absolute, so that it can be read back anywhere (not a
// path that is not UTF-8, which TOML cannot express).
std::string PrintConfig(const Config& config);

// `config` with the budgets that Store::Open would choose for "auto" now; asks the GPUs' driver.
Config WithChosenBudgets(const Config& config);

}  // namespace hps
