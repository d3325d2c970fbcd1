// One range of one table, written as sorted files that RocksDB can take over as they are.
#pragma once

#include <rocksdb/sst_file_writer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "hps/span.h"
#include "l3_rocksdb/rocks_options.h"
#include "l3_rocksdb/staging.h"

namespace hps {

// For one thread. Files are of about kTableFileBytes; their names begin with `prefix`.
class PartWriter {
 public:
  PartWriter(const RocksOptions& options, const StagedTable& table, std::string directory,
             std::string prefix);

  // Rows as imported, with version 0. Errors: INVALID_ARGUMENT (keys out of order; nothing of the
  // call has been written up to the first such key), RESOURCE_EXHAUSTED.
  absl::Status Add(std::span<const Key> keys, HostRows rows);

  // A stored value as it is. REQUIRES: keys ascending.
  absl::Status AddValue(Key key, std::string_view value);

  // Completes and syncs the files. Nothing may be added any more.
  absl::Status Finish();

  Key first_key() const { return first_key_; }
  Key last_key() const { return last_key_; }
  uint64_t row_count() const { return row_count_; }
  const std::vector<StagedFile>& row_files() const { return row_files_; }
  const std::vector<StagedFile>& key_files() const { return key_files_; }

 private:
  absl::Status OpenRowFile();
  absl::Status FinishRowFile();
  absl::Status WriteKeyChunk();

  const StagedTable& table_;
  const std::string directory_;
  const std::string prefix_;
  const rocksdb::Options row_options_;
  const rocksdb::Options key_options_;
  std::unique_ptr<rocksdb::SstFileWriter> row_writer_;  // null between files
  std::unique_ptr<rocksdb::SstFileWriter> key_writer_;  // null before the first chunk
  std::string value_;
  std::vector<Key> chunk_;  // keys not yet in the key file
  Key first_key_ = 0;
  Key last_key_ = 0;
  uint64_t row_count_ = 0;
  std::vector<StagedFile> row_files_;
  std::vector<StagedFile> key_files_;
};

}  // namespace hps
