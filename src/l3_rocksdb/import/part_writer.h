// Writes one range of one table: as a page file, or as sorted files that RocksDB ingests unchanged.
#pragma once

#include <rocksdb/sst_file_writer.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/span.h"
#include "l3_pages/page_file_writer.h"
#include "l3_rocksdb/import/staging.h"
#include "l3_rocksdb/rocks_options.h"

namespace hps {

// The files of a finished part.
struct WrittenPart {
  Key first_key = 0;
  Key last_key = 0;
  uint64_t row_count = 0;  // 0 = no files; first_key and last_key are not set
  std::vector<StagedFile> row_files;
  std::vector<StagedFile> key_files;
  std::vector<StagedPageFile> page_files{};  // of an import into page files: one
};

// For one thread. A file has about kTableFileBytes; its name begins with `prefix`. Uses up to
// kPartBytesMax of memory (tier/durable_tier.h) until it is destroyed, mostly for the filter of the
// current file.
class PartWriter {
 public:
  PartWriter(const RocksOptions& options, const StagedTable& table, std::string directory,
             std::string prefix);

  // Adds rows with version 0. Errors: INVALID_ARGUMENT (keys out of order), RESOURCE_EXHAUSTED.
  // After an error, the rows before the failed one have been added.
  absl::Status Add(std::span<const Key> keys, HostRows rows);

  // Adds a stored value unchanged. REQUIRES: keys ascending; the table is not in page files.
  absl::Status AddValue(Key key, std::string_view value);

  // Completes and syncs the files. REQUIRES: no Add afterwards.
  absl::StatusOr<WrittenPart> Finish();

 private:
  absl::Status AddToPages(std::span<const Key> keys, HostRows rows);
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
  std::unique_ptr<PageFileWriter> page_writer_;         // null before the first row
  std::string value_;
  std::vector<Key> chunk_;  // keys not yet in the key file
  WrittenPart written_;
};

}  // namespace hps
