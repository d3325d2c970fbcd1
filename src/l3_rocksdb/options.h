// How a RocksDB store is opened. Includes no RocksDB header, so that src/node can use it.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "hps/config.h"
#include "hps/store.h"

namespace rocksdb {
class Env;
}

namespace hps {

// Format of a store's files (docs/store_format.md). Written when the store is made; increases with
// each change that another hps cannot read. A store of another format is refused.
inline constexpr uint32_t kStoreFormatVersion = 6;

// The kind of process that writes to a store. A command waits for another command, but leaves its
// import to a server.
enum class OwnerRole { kCommand, kServer };

struct RocksStoreOptions {
  StoreConfig config;
  OpenMode mode = OpenMode::kReadWrite;
  OwnerRole role = OwnerRole::kCommand;
  // Maximum wait for another command that holds the store. No process waits for a server.
  Duration lock_timeout = std::chrono::seconds(0);
  // Reads table files with direct I/O, without the page cache, to measure a cold disk.
  bool direct_reads = false;
  // A table with fewer changed keys is not merged, whatever its share: its changes are in memory.
  uint64_t merge_keys_min = 65'536;
  // After a merge that failed, the next one of the table begins so much later.
  Duration merge_retry = std::chrono::minutes(10);
  // Environment for all files of the store; null = rocksdb::Env::Default(). Not owned; must outlive
  // the store and everything opened from it.
  rocksdb::Env* env = nullptr;
};

}  // namespace hps
