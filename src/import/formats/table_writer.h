// Writes the files of a table, in HugeCTR's or NumPy's directory format, with rows in the given
// order.
//
// The files get their final names when they are complete and durable. Existing files are never
// replaced. A writer that is destroyed before Finish, or whose Finish fails, removes its files. For
// one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/span.h"
#include "hps/transfer.h"
#include "hps/types.h"
#include "import/formats/pending_file.h"

namespace hps {

class TableWriter {
 public:
  // Creates `directory` if it does not exist. The caller appends rows of [dim] elements of `dtype`.
  // HugeCTR's files hold float32; float16 and bfloat16 are converted, which is exact. NumPy's files
  // hold `dtype`, with bfloat16 as uint16 bit patterns. Errors: ALREADY_EXISTS (the directory holds
  // a table or a file with one of the names), INVALID_ARGUMENT (another format), PERMISSION_DENIED,
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<TableWriter>> Create(TableFormat format,
                                                             const std::string& directory,
                                                             uint32_t dim, Dtype dtype);
  TableWriter(const TableWriter&) = delete;
  TableWriter& operator=(const TableWriter&) = delete;
  ~TableWriter();

  // Errors: RESOURCE_EXHAUSTED, UNAVAILABLE.
  absl::Status Append(std::span<const Key> keys, HostRows rows);

  // Makes the files durable and gives them their final names. Errors: those of Append;
  // ALREADY_EXISTS (meanwhile another process has created a table in the directory, which stays
  // unchanged).
  absl::Status Finish();

  uint64_t row_count() const { return row_count_; }
  uint64_t bytes() const { return key_file_.bytes + row_file_.bytes; }

 private:
  struct Output {
    PendingFile pending;
    uint64_t bytes = 0;
  };
  TableWriter(TableFormat format, std::string directory, Output keys, Output rows)
      : format_(format),
        directory_(std::move(directory)),
        key_file_(std::move(keys)),
        row_file_(std::move(rows)) {}

  static absl::Status AppendTo(Output& output, std::span<const std::byte> bytes);
  absl::Status WriteHeaders();
  absl::Status Publish();

  const TableFormat format_;
  const std::string directory_;
  Output key_file_;
  Output row_file_;
  uint32_t dim_ = 0;
  Dtype dtype_ = Dtype::kFloat32;       // of the appended rows
  Dtype file_dtype_ = Dtype::kFloat32;  // of the written rows
  bool made_directory_ = false;
  bool finished_ = false;
  uint64_t row_count_ = 0;
  std::string piece_;  // packed and converted rows of one batch
};

}  // namespace hps
