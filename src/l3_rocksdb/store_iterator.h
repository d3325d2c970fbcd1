// Creates the iterators over a store. Every iterator that must report damage is created here.
//
// The merging iterator of RocksDB 7.8.3 loses a read error (fixed in 8.5.1). If it cannot read the
// first block of any table file but the first, it ends early, or continues with the rows of the
// other levels only. In both cases its status is OK. It loses the error where it steps over the end
// of a file to handle range deletions. An iterator with ignore_range_deletions reports the error.
// Compactions and flushes are not affected.
//
// Ignoring range deletions shows no deleted data: nothing in a store is deleted by range.
#pragma once

#include <rocksdb/db.h>

#include <memory>

namespace hps {

// Never null. Reads the state as of its creation. Do not use an iterator after it has reported
// damage: it may not read the block again.
inline std::unique_ptr<rocksdb::Iterator> NewStoreIterator(
    rocksdb::DB& database, rocksdb::ColumnFamilyHandle* family,
    rocksdb::ReadOptions options = rocksdb::ReadOptions()) {
  options.ignore_range_deletions = true;
  return std::unique_ptr<rocksdb::Iterator>(database.NewIterator(options, family));
}

}  // namespace hps
