// How a RocksDB store is opened. Names no RocksDB header, so that the composition can use it.
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

// Of the files of a store: grows when an older hps can't read them any more.
inline constexpr uint32_t kStoreFormatVersion = 1;

// What the process that writes to a store is: a command waits for another command, and leaves its
// import to a server.
enum class OwnerRole { kCommand, kServer };

struct RocksStoreOptions {
  StoreConfig config;
  OpenMode mode = OpenMode::kReadWrite;
  OwnerRole role = OwnerRole::kCommand;
  // How long to wait for another command that holds the store; a server is never waited for.
  Duration lock_timeout = std::chrono::seconds(0);
  // Reads table files past the page cache: for measuring what a cold disk costs.
  bool direct_reads = false;
  // Every file of the store is reached through it; null = rocksdb::Env::Default(). Not owned; must
  // outlive the store and everything opened from it.
  rocksdb::Env* env = nullptr;
};

}  // namespace hps
