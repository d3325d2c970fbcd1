// How long the MANIFEST was when tables last changed, beside the database: STORE/hps.manifest.
//
// RocksDB takes a MANIFEST that was cut between two records for one that ends there, opens an older
// state, and removes the files that it does not know any more. The mark tells the difference. The
// file is two equal lines, so that a bit that flips in one of them closes no healthy store: the
// name and length of the MANIFEST and the CRC-32C of both, in hexadecimal.
#pragma once

#include <rocksdb/db.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

struct ManifestMark {
  enum class State {
    kMissing,  // of a store in the making
    kWhole,
    kOneCopy,  // the other one is damaged
    kDamaged,  // both
  };
  State state = State::kMissing;
  // Of the MANIFEST, where a copy can be read.
  uint64_t number = 0;
  uint64_t bytes = 0;
};

// Durable when it returns.
absl::Status WriteManifestMark(rocksdb::DB& db, const std::string& store);

// Errors: those of a failed read.
absl::StatusOr<ManifestMark> ReadManifestMark(rocksdb::Env* env, const std::string& store);

// Compares a mark with the files; one that is missing or damaged says nothing, and all passes.
// Errors: DATA_LOSS (the MANIFEST is shorter or older than it was, damaged before that length, or
// missing), those of a failed read.
absl::Status CheckManifest(rocksdb::Env* env, const std::string& store, const ManifestMark& mark);

// For opening the store: CheckManifest, and DATA_LOSS for a damaged mark, which a repair makes
// anew.
absl::Status CheckManifestMark(rocksdb::Env* env, const std::string& store);

}  // namespace hps
