// The environment of a database: its files, and time that nobody can set.
//
// RocksDB asks the clock of the day how long something has taken and whether a read's deadline has
// passed: when somebody sets it forward, reads under way give up. Here NowMicros goes on from the
// time of day at which the process first asked, by the machine's monotonic clock. What RocksDB
// writes down (when a table file was made) is GetCurrentTime, still the time of day.
//
// Of what measures by NowMicros, only waits that RocksDB begins for a disk's space or a rate limit
// end at a time of day; a store has neither.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <memory>

namespace hps {

// Thread-safe. Threads and all else are RocksDB's default environment's.
std::unique_ptr<rocksdb::Env> NewStoreEnv(const std::shared_ptr<rocksdb::FileSystem>& files);

}  // namespace hps
