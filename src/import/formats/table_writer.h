// Writes a table's files: HugeCTR's or NumPy's directory, rows in the order given.
//
// The files get their names when everything is in them and on the disk, and never those of files
// that are there; a writer that is destroyed before Finish, or whose Finish fails, removes what it
// made. For one thread.
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
  // Makes `directory` if need be. Rows come as [dim] of `dtype`; HugeCTR's files hold float32
  // (float16 and bfloat16 are widened, exactly), NumPy's the dtype itself (bfloat16 as uint16 bit
  // patterns: NumPy has no such type).
  // Errors: ALREADY_EXISTS (it holds a table, or a file of its names), INVALID_ARGUMENT (another
  // format), PERMISSION_DENIED, RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<TableWriter>> Create(TableFormat format,
                                                             const std::string& directory,
                                                             uint32_t dim, Dtype dtype);
  TableWriter(const TableWriter&) = delete;
  TableWriter& operator=(const TableWriter&) = delete;
  ~TableWriter();

  // Errors: RESOURCE_EXHAUSTED, UNAVAILABLE.
  absl::Status Append(std::span<const Key> keys, HostRows rows);

  // Makes the files durable and gives them their names. Errors: as Append; ALREADY_EXISTS (another
  // table has come to the directory meanwhile, which stays as it is).
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
  Dtype dtype_ = Dtype::kFloat32;       // of the rows given
  Dtype file_dtype_ = Dtype::kFloat32;  // of the rows written
  bool made_directory_ = false;
  bool finished_ = false;
  uint64_t row_count_ = 0;
  std::string piece_;  // rows packed and converted, one batch at a time
};

}  // namespace hps
