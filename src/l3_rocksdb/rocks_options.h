// RocksDB's own options, as hps sets them, with the reasons. Internal to this folder.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include <memory>

#include "l3_rocksdb/options.h"

namespace hps {

inline constexpr char kKeyListFamily[] = "keys";
inline constexpr char kRowFamilyPrefix[] = "rows-";
// A bulk-imported file holds about this much: its index and filter stay small enough to be cached
// as one block each.
inline constexpr uint64_t kTableFileBytes = uint64_t{64} << 20;

inline rocksdb::Env* EnvOf(const RocksStoreOptions& options) {
  return options.env != nullptr ? options.env : rocksdb::Env::Default();
}

// One block cache and one write-buffer manager for all tables of a store, and the options that use
// them. Also makes the options of files that are written outside a database (no cache then).
class RocksOptions {
 public:
  explicit RocksOptions(const RocksStoreOptions& options);

  rocksdb::DBOptions database() const { return database_; }
  // Of an incarnation's rows.
  rocksdb::ColumnFamilyOptions rows() const { return rows_; }
  // Of the catalog and the key lists: small, read in order.
  rocksdb::ColumnFamilyOptions catalog() const { return catalog_; }

  rocksdb::Options for_row_files() const { return {database_, rows_}; }
  rocksdb::Options for_key_list_files() const { return {database_, catalog_}; }

 private:
  rocksdb::DBOptions database_;
  rocksdb::ColumnFamilyOptions rows_;
  rocksdb::ColumnFamilyOptions catalog_;
};

}  // namespace hps
