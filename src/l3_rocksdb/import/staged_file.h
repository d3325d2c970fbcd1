// A table file that is about to be taken over, opened so that the take-over can't meet an error of
// the disk half-way.
//
// RocksDB 7.8.3 looks at a file's first and last key while it ingests it and does not ask whether
// the reads went well. After an error in the first it takes the file's range of keys for empty, and
// all its rows are absent from then on; after one in the last its assertion ends the process.
#pragma once

#include <rocksdb/file_system.h>

#include <memory>
#include <string>

namespace hps {

// Does what an ingestion will do, opens the table and reads its first and last key, and gives a
// file that answers the same reads from memory (about one in fifty bytes of it). Errors: those that
// the ingestion would have met.
rocksdb::IOStatus OpenStagedFile(const std::shared_ptr<rocksdb::FileSystem>& target,
                                 const std::string& path, const rocksdb::FileOptions& options,
                                 std::unique_ptr<rocksdb::FSRandomAccessFile>* file);

}  // namespace hps
