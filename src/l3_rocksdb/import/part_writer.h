// One range of one table, written as sorted files that RocksDB can take over as they are.
#pragma once

#include <rocksdb/sst_file_writer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/span.h"
#include "l3_rocksdb/import/staging.h"
#include "l3_rocksdb/rocks_options.h"

namespace hps {

// What a part became.
struct WrittenPart {
  Key first_key = 0;
  Key last_key = 0;
  uint64_t row_count = 0;  // 0 = there are no files, and no first and last key
  std::vector<StagedFile> row_files;
  std::vector<StagedFile> key_files;
};

// For one thread. Files are of about kTableFileBytes; their names begin with `prefix`. Takes up to
// kPartBytesMax of memory (tier/durable_tier.h) until it is destroyed, most of it for the filter of
// the file at hand.
class PartWriter {
 public:
  PartWriter(const RocksOptions& options, const StagedTable& table, std::string directory,
             std::string prefix);

  // Rows as imported, with version 0. Errors: INVALID_ARGUMENT (keys out of order),
  // RESOURCE_EXHAUSTED. Rows before the one that failed have been added.
  absl::Status Add(std::span<const Key> keys, HostRows rows);

  // A stored value as it is. REQUIRES: keys ascending.
  absl::Status AddValue(Key key, std::string_view value);

  // Completes and syncs the files. Nothing may be added any more.
  absl::StatusOr<WrittenPart> Finish();

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
  WrittenPart written_;
};

}  // namespace hps
