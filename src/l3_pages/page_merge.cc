#include "l3_pages/page_merge.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/rate_limiter.h"
#include "l3_pages/page_file_writer.h"

namespace hps {
namespace {

// Rows of the table that are read at a time, about. The pace is kept between them.
constexpr size_t kMergeReadBytes = size_t{256} << 10;

// Rows that a source has handed out and the merge has not taken yet.
struct PendingRows {
  std::span<const Key> keys;
  HostRows rows;
  std::span<const Version> versions;
  size_t taken = 0;

  size_t left() const { return keys.size() - taken; }
  Key next_key() const { return keys[taken]; }
};

class PageMerger {
 public:
  PageMerger(const PageTable& table, PageChangeCursor& changes, const PageMergeOptions& options,
             Latch& cancel)
      : options_(options),
        row_bytes_(table.row_bytes()),
        changes_(changes),
        cancel_(cancel),
        pace_(options.bytes_per_second, Duration::zero()),
        keys_(std::max<size_t>(kMergeReadBytes / row_bytes_, 1)),
        versions_(keys_.size()),
        bytes_(keys_.size() * row_bytes_) {}

  absl::StatusOr<PageFileDescription> Run(const PageTable& table);

 private:
  absl::Status ReadTable();
  absl::Status ReadChanges();
  absl::Status KeepPace(size_t row_count);
  absl::Status TakeOldRows();
  absl::Status TakeChange();
  absl::Status Write(PendingRows& from, size_t count);

  const PageMergeOptions& options_;
  const size_t row_bytes_;
  PageChangeCursor& changes_;
  Latch& cancel_;
  RateLimiter pace_;       // keeps the rate over every interval
  std::vector<Key> keys_;  // the table's rows of one read
  std::vector<Version> versions_;
  std::vector<std::byte> bytes_;
  std::unique_ptr<RowCursor> cursor_;
  std::unique_ptr<PageFileWriter> writer_;
  PendingRows old_;
  PendingRows changed_;
  std::span<const uint8_t> deleted_;  // of changed_
  std::optional<Key> last_change_{};  // that was read
  uint64_t written_ = 0;              // rows
};

absl::StatusOr<PageFileDescription> PageMerger::Run(const PageTable& table) {
  HPS_ASSIGN_OR_RETURN(cursor_, table.Scan());
  HPS_ASSIGN_OR_RETURN(writer_,
                       PageFileWriter::Create(options_.path, options_.incarnation, row_bytes_));
  HPS_RETURN_IF_ERROR(writer_->Reserve(table.row_count()));
  for (;;) {
    if (old_.left() == 0) HPS_RETURN_IF_ERROR(ReadTable());
    if (changed_.left() == 0) HPS_RETURN_IF_ERROR(ReadChanges());
    if (old_.left() == 0 && changed_.left() == 0) break;
    const bool old_first =
        changed_.left() == 0 || (old_.left() > 0 && old_.next_key() < changed_.next_key());
    HPS_RETURN_IF_ERROR(old_first ? TakeOldRows() : TakeChange());
  }
  if (written_ > 0) return writer_->Finish();
  PageFileDescription nothing;
  nothing.incarnation = options_.incarnation;
  nothing.shape = PageShape::Of(row_bytes_);
  return nothing;
}

absl::Status PageMerger::ReadTable() {
  const HostRows rows{bytes_.data(), keys_.size(), row_bytes_, row_bytes_};
  HPS_ASSIGN_OR_RETURN(const size_t count, cursor_->Next(keys_, rows, versions_));
  old_ = {std::span(keys_).first(count), rows, std::span(versions_).first(count)};
  return KeepPace(count);
}

absl::Status PageMerger::ReadChanges() {
  HPS_ASSIGN_OR_RETURN(const PageChangeCursor::Changes changes, changes_.Next());
  HPS_CHECK(changes.deleted.size() == changes.keys.size() &&
            changes.versions.size() == changes.keys.size());
  for (const Key key : changes.keys) {
    if (last_change_.has_value() && key <= *last_change_) {
      return absl::InvalidArgumentError(absl::StrCat("the merge into ", options_.path, ": change ",
                                                     key, " follows change ", *last_change_,
                                                     "; changes must ascend"));
    }
    last_change_ = key;
  }
  changed_ = {changes.keys, changes.rows, changes.versions};
  deleted_ = changes.deleted;
  return KeepPace(changes.keys.size());
}

// Rows that were read are also written, more or less.
absl::Status PageMerger::KeepPace(size_t row_count) {
  const uint64_t bytes = row_count * (row_bytes_ + sizeof(Key) + sizeof(Version));
  if (cancel_.WaitUntil(pace_.Take(2 * bytes, RealClock().Now())))
    return absl::CancelledError(absl::StrCat("the merge into ", options_.path, " was cancelled"));
  return options_.check ? options_.check() : absl::OkStatus();
}

// Those before the next change.
absl::Status PageMerger::TakeOldRows() {
  if (changed_.left() == 0) return Write(old_, old_.left());
  const auto begin = old_.keys.begin() + static_cast<std::ptrdiff_t>(old_.taken);
  const auto end = std::lower_bound(begin, old_.keys.end(), changed_.next_key());
  return Write(old_, static_cast<size_t>(end - begin));
}

absl::Status PageMerger::TakeChange() {
  if (old_.left() > 0 && old_.next_key() == changed_.next_key()) ++old_.taken;
  if (deleted_[changed_.taken] == 0) return Write(changed_, 1);
  ++changed_.taken;
  return absl::OkStatus();
}

absl::Status PageMerger::Write(PendingRows& from, size_t count) {
  HostRows rows = from.rows;
  rows.data = rows.row(from.taken);
  rows.row_count = count;
  const absl::Status added = writer_->Add(from.keys.subspan(from.taken, count), rows,
                                          from.versions.subspan(from.taken, count));
  from.taken += count;
  written_ += count;
  return added;
}

}  // namespace

absl::StatusOr<PageFileDescription> MergePages(const PageTable& table, PageChangeCursor& changes,
                                               const PageMergeOptions& options, Latch& cancel) {
  return PageMerger(table, changes, options, cancel).Run(table);
}

}  // namespace hps
