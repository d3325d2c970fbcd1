// Opens a table file for ingestion, so that no disk error can occur during the ingestion.
//
// RocksDB 7.8.3 reads the first and last key of a file that it ingests and ignores read errors. If
// reading the first key fails, it takes the key range of the file for empty, and all its rows are
// absent from then on. If reading the last key fails, its assertion ends the process.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>
#include <string>

namespace hps {

// Performs the reads of an ingestion in advance: opens the table and reads its first and last key.
// Returns a file that answers the same reads from memory (about one in fifty of its bytes). Errors:
// those of these reads.
rocksdb::IOStatus OpenStagedFile(const std::shared_ptr<rocksdb::FileSystem>& target,
                                 const std::string& path, const rocksdb::FileOptions& options,
                                 std::unique_ptr<rocksdb::FSRandomAccessFile>* file);

}  // namespace hps
