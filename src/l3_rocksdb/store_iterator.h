// The iterators over a store. Every one that must report damage is made here.
//
// RocksDB's own ends where it must not when the first block of a table file behind the first can't
// be read: it says that the family ends, or goes on with other levels' rows alone, and in either
// case that all is well (RocksDB 7.8.3, mended in 8.5.1). The error gets lost where its merging
// iterator steps over the end of a file for the sake of range deletions, so an iterator that is
// told to ignore them does report it. Compactions and flushes don't step like that.
//
// Nothing that was deleted is shown for it: rows and catalog are never deleted by range. Lists of
// keys are, but only whole ones, of imports that are gone (key_list.h), and whoever reads lists
// asks for one that is not.
#pragma once

#include <rocksdb/db.h>

#include <memory>

namespace hps {

// Never null. Shows the moment at which it is made. One that has met damage is no good any more: it
// may not read a block again.
inline std::unique_ptr<rocksdb::Iterator> NewStoreIterator(
    rocksdb::DB& database, rocksdb::ColumnFamilyHandle* family,
    rocksdb::ReadOptions options = rocksdb::ReadOptions()) {
  options.ignore_range_deletions = true;
  return std::unique_ptr<rocksdb::Iterator>(database.NewIterator(options, family));
}

}  // namespace hps
