// Every setting of hps as a value, the same names and defaults as in the TOML file
// (docs/configuration.md lists each with its meaning).
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

enum class SyncMode { kAlways, kInterval, kNever };          // "always", "interval", "never"
enum class L2Kind { kMemory, kNone };                        // "memory", "none"
enum class EvictionPolicy { kOldest, kLeastUsed, kRandom };  // "oldest", "least_used", "random"

struct StoreConfig {
  std::string path = "store";
  uint64_t cache_bytes = uint64_t{1} << 30;
  uint64_t write_buffer_bytes = uint64_t{256} << 20;
  SyncMode sync = SyncMode::kInterval;
  std::chrono::nanoseconds sync_interval = std::chrono::seconds(1);
  uint64_t free_bytes_min = uint64_t{256} << 20;  // writes are refused below this much free disk
};

struct L2Config {
  L2Kind kind = L2Kind::kMemory;
  uint64_t bytes_max = uint64_t{4} << 30;
  double preload = 0.0;  // share of every table loaded at start
  EvictionPolicy eviction = EvictionPolicy::kOldest;
  double evict_from = 0.98;  // eviction starts when a table fills this share of its budget
  double evict_to = 0.9;     // eviction stops at this share
  bool huge_pages = true;    // requested from the operating system; used if available
};

struct L1Config {
  bool devices_auto = true;    // every GPU present; none without a GPU
  std::vector<int> devices{};  // when not auto: a listed one that is missing is an error
  uint64_t bytes_max = uint64_t{2} << 30;  // per device, of rows and their metadata
  double preload = 0.0;                    // share of every table loaded at start
  // Look-ups at a time on one device; each has buffers of its own, of which a key takes about 50
  // bytes on the device and 55 on the host. 0 = 16; of a server its look-ups, divided by the
  // devices, if they are more and the device has room for them.
  uint32_t calls_max = 0;
  uint32_t call_keys_max = uint32_t{1} << 18;       // keys of one look-up, over all its tables
  uint64_t call_staging_bytes = uint64_t{8} << 20;  // rows of misses that one look-up may stage
};

struct LookupConfig {
  double hit_rate_threshold = 1.0;
  std::chrono::nanoseconds timeout = std::chrono::seconds(1);
};

struct ThreadsConfig {
  uint32_t fetch = 0;    // workers that fetch from blocking levels; 0 = the number of cores
  uint32_t promote = 1;  // workers that insert into upper levels after the reply
  // How long a worker that helps with a device's misses waits for more, on its core.
  std::chrono::nanoseconds helper_spin = std::chrono::microseconds(500);
};

struct TableConfig {
  std::string name;                    // without the model's name
  std::optional<double> l2_share{};    // of the table that L2 may hold
  std::optional<uint64_t> l2_bytes{};  // instead of the share
  std::optional<double> l1_share{};
  std::optional<uint64_t> l1_bytes{};
  std::string l1_hot_keys;  // an .npy file of keys that L1 loads at start; empty = none
};

struct ModelConfig {
  std::string name;
  std::vector<std::string> tables{};  // declared order; empty = order of first import
  std::vector<TableConfig> table{};   // [[model.table]]
};

struct Config {
  StoreConfig store;
  L2Config l2;
  L1Config l1;
  LookupConfig lookup;
  ThreadsConfig threads;
  ServerConfig server;
  LogConfig log;
  std::vector<ModelConfig> model{};  // empty = all models of the store

  // Where a setting came from when it is not the default: "l2.bytes_max" -> "hps.toml:4". Settings
  // of models are named "model[dlrm].tables" and "model[dlrm].table[user].l2_share".
  std::map<std::string, std::string> origin{};
};

// Reads a TOML file, strictly. Relative paths in it are relative to the file.
// Errors: NOT_FOUND / PERMISSION_DENIED for the file; INVALID_ARGUMENT with line and column for
// TOML that does not parse, an unknown setting (names the nearest known one), a wrong type, a value
// out of range; UNIMPLEMENTED for a setting whose part this build does not have.
absl::StatusOr<Config> LoadConfig(const std::string& path);

// What LoadConfig checks, for a configuration that was made in code; Store::Open calls it.
// Errors: INVALID_ARGUMENT, UNIMPLEMENTED, as LoadConfig.
absl::Status ValidateConfig(const Config& config);

// The whole configuration as TOML, one line per setting: `l2.preload = 0.5  # hps.toml:4`, where
// the comment tells where the value came from. Paths are printed absolute, so that LoadConfig reads
// the same back from a file anywhere (paths that are not UTF-8 excepted: TOML has no way to write
// them).
std::string PrintConfig(const Config& config);

}  // namespace hps
