// Reads several blocks of a table file at a time. RocksDB's MultiGet asks for up to 32 blocks of a
// file at once. Debian's build of RocksDB 7.8.3 is made without io_uring, and reads them one after
// the other; these files read them side by side.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/file_system.h>

#include <memory>

namespace hps {

// The file system of `env`. For null: RocksDB's default one, but the table files that it opens for
// random reads are read as above. Where the system refuses io_uring, they are read one after the
// other. Thread-safe.
std::shared_ptr<rocksdb::FileSystem> FileSystemOf(rocksdb::Env* env);

}  // namespace hps
