// The environment of a database: its files, and a monotonic clock.
//
// RocksDB uses the wall clock to measure durations and to check the deadlines of reads. If the wall
// clock is set forward, running reads time out. Here NowMicros is the time of day of its first call
// plus the time since then by the monotonic clock. GetCurrentTime, which RocksDB stores in files
// (creation times), stays the time of day.
//
// RocksDB's waits for disk space or a rate limit end at a time of day that it computes from
// NowMicros. A store uses neither.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <cstdint>
#include <memory>

#include "base/clock.h"

namespace hps {

// Thread-safe. Uses the threads of RocksDB's default environment, and all else of it.
std::unique_ptr<rocksdb::Env> NewStoreEnv(const std::shared_ptr<rocksdb::FileSystem>& files);

// What NowMicros of these environments returns at `time`. Pass RocksDB a deadline by this function:
// "NowMicros plus the time that is left" would be late by the time that the thread is paused
// between reading the two clocks. Thread-safe.
uint64_t StoreMicrosAt(TimePoint time);

}  // namespace hps
