// RocksDB's options as hps sets them, with the reason for each. Internal to this folder.
#pragma once

#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include <memory>

#include "l3_rocksdb/options.h"

namespace hps {

inline constexpr char kRowFamilyPrefix[] = "rows-";
inline constexpr char kNetworkFamilyPrefix[] = "network-";

inline rocksdb::Env* EnvOf(const RocksStoreOptions& options) {
  return options.env != nullptr ? options.env : rocksdb::Env::Default();
}

// RocksDB's part of a store's cache, for changes. The rest is for pages.
constexpr uint64_t BlockCacheBytes(uint64_t cache_bytes) {
  return cache_bytes - cache_bytes / 4 * 3;
}

// One block cache and one write-buffer manager for all tables of a store, and the options that use
// them.
class RocksOptions {
 public:
  explicit RocksOptions(const RocksStoreOptions& options);

  rocksdb::DBOptions database() const { return database_; }
  // For the changes of an incarnation.
  rocksdb::ColumnFamilyOptions rows() const { return rows_; }
  // For the catalog and networks, which are small and read in order.
  rocksdb::ColumnFamilyOptions catalog() const { return catalog_; }

  // Opens a table file outside a database.
  rocksdb::Options for_one_file() const { return {database_, rows_}; }

 private:
  rocksdb::DBOptions database_;
  rocksdb::ColumnFamilyOptions rows_;
  rocksdb::ColumnFamilyOptions catalog_;
};

}  // namespace hps
