// RocksDB's options as hps sets them, with the reason for each. Internal to this folder.
#pragma once

#include <rocksdb/cache.h>
#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include <memory>

#include "l3_rocksdb/options.h"

namespace hps {

inline constexpr char kKeyListFamily[] = "keys";
inline constexpr char kRowFamilyPrefix[] = "rows-";
inline constexpr char kNetworkFamilyPrefix[] = "network-";
// Approximate size of a bulk-imported file. Its index and filter are small enough to be cached as
// one block each.
inline constexpr uint64_t kTableFileBytes = uint64_t{64} << 20;

inline rocksdb::Env* EnvOf(const RocksStoreOptions& options) {
  return options.env != nullptr ? options.env : rocksdb::Env::Default();
}

// One block cache and one write-buffer manager for all tables of a store, and the options that use
// them. Also creates the options for files that are written outside a database, without the cache.
class RocksOptions {
 public:
  explicit RocksOptions(const RocksStoreOptions& options);

  rocksdb::DBOptions database() const { return database_; }
  // For the rows of an incarnation.
  rocksdb::ColumnFamilyOptions rows() const { return rows_; }
  // For the catalog, the key lists and networks, which are small and read in order.
  rocksdb::ColumnFamilyOptions catalog() const { return catalog_; }

  // Of blocks, shared by all databases that were opened with these options.
  rocksdb::Cache& cache() const { return *cache_; }

  rocksdb::Options for_row_files() const { return {database_, rows_}; }
  rocksdb::Options for_key_list_files() const { return {database_, catalog_}; }

 private:
  std::shared_ptr<rocksdb::Cache> cache_;
  rocksdb::DBOptions database_;
  rocksdb::ColumnFamilyOptions rows_;
  rocksdb::ColumnFamilyOptions catalog_;
};

}  // namespace hps
