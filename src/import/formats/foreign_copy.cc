#include "import/formats/foreign_copy.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/macros.h"

namespace hps {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr size_t kBufferKeys = 8192;
constexpr Duration kProgressEvery = std::chrono::milliseconds(250);
// A table with this many rows per part has rows in each of them: that a hash leaves one of n parts
// empty has a probability below n x e^-64.
constexpr uint64_t kRowsPerPartSure = 64;

// The tables lie one behind the other in both files.
struct CopyFiles {
  File keys;
  File rows;
  uint64_t keys_end = 0;
  uint64_t rows_end = 0;
};

struct CopyShape {
  uint64_t keys_begin = 0;  // offsets in the files
  uint64_t rows_begin = 0;
  uint64_t row_count = 0;
  size_t key_bytes = sizeof(Key);  // in the cache
  size_t row_bytes = 0;
};

class CopiedTable final : public ForeignTable {
 public:
  CopiedTable(std::shared_ptr<const CopyFiles> files, const CopyShape& shape)
      : files_(std::move(files)), shape_(shape) {}

  uint64_t row_count() const override { return shape_.row_count; }
  size_t key_bytes() const override { return shape_.key_bytes; }
  size_t row_bytes() const override { return shape_.row_bytes; }
  bool keys_repeat() const override { return true; }

  absl::Status Read(uint64_t first_row, std::span<Key> keys,
                    std::span<std::byte> rows) const override {
    HPS_RETURN_IF_ERROR(files_->keys.ReadAt(shape_.keys_begin + first_row * sizeof(Key),
                                            std::as_writable_bytes(keys)));
    return files_->rows.ReadAt(shape_.rows_begin + first_row * shape_.row_bytes, rows);
  }

 private:
  const std::shared_ptr<const CopyFiles> files_;
  const CopyShape shape_;
};

// Writes one table's records to the files.
class TableCopier final : public ForeignRecordSink {
 public:
  TableCopier(const CopyFiles& files, const ForeignCopyOptions& options, const std::string& table)
      : files_(files),
        progress_(options.progress),
        what_(absl::StrCat(options.what, ", table '", table, "'")) {
    shape_.keys_begin = files.keys_end;
    shape_.rows_begin = files.rows_end;
  }

  const CopyShape& shape() const { return shape_; }

  void Begin() override {
    keys_.clear();
    rows_.clear();
    shape_.row_count = part_begin_;
  }

  absl::Status Add(std::string_view key, std::string_view row) override {
    if (shape_.row_bytes == 0) {
      HPS_RETURN_IF_ERROR(CheckHugectrSizes(what_, key.size(), row.size()));
      shape_.key_bytes = key.size();
      shape_.row_bytes = row.size();
    }
    if (key.size() != shape_.key_bytes || row.size() != shape_.row_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(what_, ": expected keys of ", shape_.key_bytes, " and rows of ",
                       shape_.row_bytes, " bytes as in the first record, found ", key.size(),
                       " and ", row.size(), " in record ", shape_.row_count + keys_.size()));
    }
    keys_.push_back(HugectrKey(key));
    rows_.append(row);
    const bool is_full = keys_.size() == kBufferKeys || rows_.size() >= kBufferBytes;
    return is_full ? Flush() : absl::OkStatus();
  }

  // Ends a part. Returns the number of its rows.
  absl::StatusOr<uint64_t> EndPart() {
    HPS_RETURN_IF_ERROR(Flush());
    return shape_.row_count - std::exchange(part_begin_, shape_.row_count);
  }

 private:
  absl::Status Flush() {
    HPS_RETURN_IF_ERROR(files_.keys.WriteAt(shape_.keys_begin + shape_.row_count * sizeof(Key),
                                            std::as_bytes(std::span(std::as_const(keys_)))));
    HPS_RETURN_IF_ERROR(files_.rows.WriteAt(shape_.rows_begin + shape_.row_count * shape_.row_bytes,
                                            AsBytes(std::string_view(rows_))));
    shape_.row_count += keys_.size();
    keys_.clear();
    rows_.clear();
    if (progress_ && RealClock().Now() >= next_progress_) {
      next_progress_ = RealClock().Now() + kProgressEvery;
      progress_({.step = "copying", .done = shape_.row_count, .total = 0});
    }
    return absl::OkStatus();
  }

  const CopyFiles& files_;
  const ProgressFunction& progress_;
  const std::string what_;  // prefix of messages
  CopyShape shape_;         // of what is in the files
  uint64_t part_begin_ = 0;
  std::vector<Key> keys_;  // not written yet
  std::string rows_;
  TimePoint next_progress_{};
};

class CopiedStore final : public ForeignStore {
 public:
  CopiedStore(std::unique_ptr<ForeignCache> cache, ForeignCopyOptions options,
              std::shared_ptr<CopyFiles> files)
      : cache_(std::move(cache)), options_(std::move(options)), files_(std::move(files)) {}

  const std::vector<std::string>& tables() const override { return cache_->tables(); }

  absl::StatusOr<std::unique_ptr<ForeignTable>> OpenTable(const std::string& name) override {
    auto copied = copied_.find(name);
    if (copied == copied_.end()) {
      HPS_ASSIGN_OR_RETURN(const CopyShape shape, Copy(name));
      files_->keys_end = shape.keys_begin + shape.row_count * sizeof(Key);
      files_->rows_end = shape.rows_begin + shape.row_count * shape.row_bytes;
      copied = copied_.emplace(name, shape).first;
    }
    return std::make_unique<CopiedTable>(files_, copied->second);
  }

 private:
  absl::StatusOr<CopyShape> Copy(const std::string& name) {
    HPS_ASSIGN_OR_RETURN(const uint32_t part_count, cache_->PartCount(name));
    TableCopier copier(*files_, options_, name);
    std::optional<uint32_t> empty_part;
    for (uint32_t part = 0; part < part_count; ++part) {
      HPS_RETURN_IF_ERROR(cache_->ReadPart(name, part, copier));
      HPS_ASSIGN_OR_RETURN(const uint64_t rows, copier.EndPart());
      if (rows == 0 && !empty_part.has_value()) empty_part = part;
    }
    const CopyShape& shape = copier.shape();
    if (empty_part.has_value() && shape.row_count >= kRowsPerPartSure * part_count) {
      return absl::FailedPreconditionError(
          absl::StrCat(options_.what, ", table '", name, "': partition ", *empty_part, " of ",
                       part_count, " has no rows, but the others have ", shape.row_count,
                       ": it was evicted or lost, or HugeCTR's num_partitions is less than ",
                       part_count, " (--partitions)"));
    }
    return shape;
  }

  const std::unique_ptr<ForeignCache> cache_;
  const ForeignCopyOptions options_;
  const std::shared_ptr<CopyFiles> files_;
  std::map<std::string, CopyShape> copied_;  // by table
};

// `path`, or the nearest directory above it that exists.
std::string ExistingDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::path directory = std::filesystem::absolute(path, error);
  while (!std::filesystem::is_directory(directory, error) && directory.has_relative_path())
    directory = directory.parent_path();
  return directory.string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ForeignStore>> CopyForeignCache(std::unique_ptr<ForeignCache> cache,
                                                               ForeignCopyOptions options) {
  const std::string directory = ExistingDirectory(options.directory);
  HPS_ASSIGN_OR_RETURN(File keys, File::CreateNameless(directory));
  HPS_ASSIGN_OR_RETURN(File rows, File::CreateNameless(directory));
  auto files =
      std::make_shared<CopyFiles>(CopyFiles{.keys = std::move(keys), .rows = std::move(rows)});
  return std::make_unique<CopiedStore>(std::move(cache), std::move(options), std::move(files));
}

}  // namespace hps
