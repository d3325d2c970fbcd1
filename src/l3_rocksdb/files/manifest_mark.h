// The mark: the length of the MANIFEST at the last change of tables, in the file
// STORE/hps.manifest.
//
// If a MANIFEST was cut between two records, RocksDB takes the cut for its end, opens an older
// state, and deletes the files that this state does not name. The mark detects the cut. The file
// has two equal lines, so that one flipped bit does not make a healthy store unusable. A line holds
// the name and length of the MANIFEST and the CRC-32C of both, in hexadecimal.
#pragma once

#include <rocksdb/db.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps {

struct ManifestMark {
  enum class State {
    kMissing,  // the store is being created
    kWhole,
    kOneCopy,  // the other copy is damaged
    kDamaged,  // both copies are damaged
  };
  State state = State::kMissing;
  // Number of the MANIFEST; valid if a copy is readable.
  uint64_t number = 0;
  uint64_t bytes = 0;
};

// Durable on return. UNAVAILABLE: CURRENT names an older MANIFEST than RocksDB does, as after a
// change of the MANIFEST that failed; the former mark, which is right as well, stays.
absl::Status WriteManifestMark(rocksdb::DB& db, const std::string& store);
// The same for a store that no database has open: the whole MANIFEST that CURRENT names.
absl::Status WriteManifestMark(rocksdb::Env* env, const std::string& store);

// Errors: those of a failed read.
absl::StatusOr<ManifestMark> ReadManifestMark(rocksdb::Env* env, const std::string& store);

// Compares a mark with the files. Accepts all files if the mark is missing or damaged. Errors:
// DATA_LOSS (the MANIFEST is shorter or older than the mark, damaged before the marked length, or
// missing), those of a failed read.
absl::Status CheckManifest(rocksdb::Env* env, const std::string& store, const ManifestMark& mark);

// Reads the mark and calls CheckManifest, before the store is opened. Errors: also DATA_LOSS for a
// damaged mark, which `hps verify --repair` rewrites.
absl::Status CheckManifestMark(rocksdb::Env* env, const std::string& store);

}  // namespace hps
