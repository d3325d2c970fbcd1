// Snapshots of a store: consistent copies in STORE/snapshots/NAME, made by hard links while the
// store is written.
//
// A snapshot is a store itself. It has every write that was acknowledged before it began, and a
// prefix of those that were made during it. It shares files of rows with the store through hard
// links, so it costs the space of a copy only as the store replaces its files; where the file
// system has no hard links, it has copies. Staged imports are no part of it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "l3_rocksdb/database.h"

namespace hps {

// Returns the bytes of the snapshot's files. The directory gets its name when it is complete and
// durable. Errors: those of DurableStore::Snapshot. REQUIRES: one call at a time for each store.
absl::StatusOr<uint64_t> MakeSnapshot(Database& database, const std::string& name);

// Removes what killed writers have left of snapshots. REQUIRES: no MakeSnapshot is running.
absl::Status RemoveUnfinishedSnapshots(rocksdb::Env* env, const std::string& store);

}  // namespace hps
