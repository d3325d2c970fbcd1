// What `hps bench l3` compares: the same rows in a store, where an import has put them into page
// files, and in a plain RocksDB; and the disk's own random reads.
//
// "cold": direct reads everywhere and next to no cache, so that nearly every row comes from the
// disk. Else the settings are the default ones.
#pragma once

#include <rocksdb/db.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/types.h"
#include "l3_pages/page_reader.h"
#include "l3_rocksdb/options.h"
#include "tier/durable_tier.h"

namespace hps::bench {

struct L3Shape {
  uint32_t dim = 0;
  bool cold = false;
  uint64_t table_bytes = 0;  // about

  size_t row_bytes() const { return size_t{dim} * 4; }
  uint64_t row_count() const;
};

using KeyBatches = std::vector<std::vector<Key>>;  // each is in ascending order

// Batches of random keys of the table, `key_count` in total, at least one batch.
KeyBatches RandomBatches(const L3Shape& shape, size_t batch_keys, uint64_t key_count,
                         uint64_t seed);

// The table in a store of its own. For one thread, except Fetch.
class StoreSide {
 public:
  // `directory` is made and removed. `changed_per_mille` of the rows are written anew after the
  // import.
  StoreSide(std::string directory, const L3Shape& shape, uint32_t changed_per_mille);
  StoreSide(const StoreSide&) = delete;
  StoreSide& operator=(const StoreSide&) = delete;
  ~StoreSide();

  // Imports, changes, and opens the store anew.
  absl::Status Prepare();
  // Fetches all rows once.
  absl::Status Warm();
  // Returns keys per second. Errors: INTERNAL (a row is missing or wrong).
  absl::StatusOr<double> Fetch(const KeyBatches& batches) const;

  Incarnation incarnation() const { return table_->incarnation(); }
  // The one that the table has.
  std::string page_file() const;
  // Bytes of memory that the open table takes besides the caches.
  absl::StatusOr<double> MeasureIndexMemory() const;

 private:
  bool IsChanged(Key key) const;
  RocksStoreOptions StoreOptions() const;
  absl::Status Import();
  absl::Status Change();

  const std::string directory_;
  const L3Shape shape_;
  const uint32_t changed_per_mille_;
  std::unique_ptr<DurableTable> table_;
};

// The same rows in RocksDB, byte for byte as a store has changed ones, and with its options.
class RocksSide {
 public:
  RocksSide(std::string directory, const L3Shape& shape);
  RocksSide(const RocksSide&) = delete;
  RocksSide& operator=(const RocksSide&) = delete;
  ~RocksSide();

  absl::Status Prepare(Incarnation incarnation);
  absl::Status Warm();
  // By RocksDB's sorted MultiGet. As StoreSide::Fetch.
  absl::StatusOr<double> Fetch(const KeyBatches& batches) const;

 private:
  const std::string directory_;
  const L3Shape shape_;
  std::unique_ptr<rocksdb::DB> db_;
};

// Random reads of blocks of 4 KiB of one file, 64 in flight.
class DiskSide {
 public:
  static absl::StatusOr<std::unique_ptr<DiskSide>> Open(const std::string& path);
  DiskSide(const DiskSide&) = delete;
  DiskSide& operator=(const DiskSide&) = delete;
  ~DiskSide() = default;

  // Returns reads per second.
  absl::StatusOr<double> Read(uint64_t read_count, uint64_t seed) const;

 private:
  DiskSide(std::unique_ptr<PageReader> reader, PageFileHandle file, uint64_t block_count)
      : reader_(std::move(reader)), file_(std::move(file)), block_count_(block_count) {}

  const std::unique_ptr<PageReader> reader_;
  const PageFileHandle file_;
  const uint64_t block_count_;
};

}  // namespace hps::bench
