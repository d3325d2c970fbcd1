// How long the MANIFEST was when tables last changed, beside the database: STORE/hps.manifest.
//
// RocksDB takes a MANIFEST that was cut between two records for one that ends there, opens an older
// state, and removes the files that it does not know any more. The mark tells the difference. The
// file is one line: the name and length of the MANIFEST and the CRC-32C of both, in hexadecimal.
#pragma once

#include <rocksdb/db.h>

#include <string>

#include "absl/status/status.h"

namespace hps {

// Durable when it returns.
absl::Status WriteManifestMark(rocksdb::DB& db, const std::string& store);

// Compares the mark with the files. A store without a mark passes.
// Errors: DATA_LOSS (the MANIFEST is shorter or older than it was, or missing), those of a failed
// read.
absl::Status CheckManifestMark(rocksdb::Env* env, const std::string& store);

}  // namespace hps
