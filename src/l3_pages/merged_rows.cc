#include "l3_pages/merged_rows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

// Rows of the base that are read at a time, about.
constexpr size_t kReadBytes = size_t{256} << 10;

// Removes the first rows of a run and returns them.
MergedRows::Run Take(size_t count, MergedRows::Run& from) {
  MergedRows::Run taken = {from.keys.first(count), from.rows, from.versions.first(count)};
  taken.rows.row_count = count;
  from.keys = from.keys.subspan(count);
  from.versions = from.versions.subspan(count);
  from.rows.data = from.rows.row(count);
  return taken;
}

}  // namespace

MergedRows::MergedRows(std::unique_ptr<RowCursor> base, PageChangeCursor& changes, size_t row_bytes)
    : base_cursor_(std::move(base)),
      change_cursor_(changes),
      keys_(std::max<size_t>(kReadBytes / row_bytes, 1)),
      versions_(keys_.size()),
      bytes_(keys_.size() * row_bytes),
      rows_{bytes_.data(), keys_.size(), row_bytes, row_bytes} {}

// Refills the buffer of each source whose buffer is empty. Returns the number of rows and changes
// read.
absl::StatusOr<size_t> MergedRows::Read() {
  size_t count = 0;
  if (base_.keys.empty()) {
    HPS_ASSIGN_OR_RETURN(count, base_cursor_->Next(keys_, rows_, versions_));
    base_ = {std::span(keys_).first(count), rows_, std::span(versions_).first(count)};
  }
  if (changes_.keys.empty()) {
    HPS_ASSIGN_OR_RETURN(const PageChangeCursor::Changes changes, change_cursor_.Next());
    HPS_CHECK(changes.deleted.size() == changes.keys.size() &&
              changes.versions.size() == changes.keys.size());
    // A deletion behind a newer key would come too late for its row.
    for (const Key key : changes.keys) {
      if (last_change_.has_value() && key <= *last_change_) {
        return absl::InvalidArgumentError(absl::StrCat("change ", key, " follows change ",
                                                       *last_change_, "; changes must ascend"));
      }
      last_change_ = key;
    }
    changes_ = {changes.keys, changes.rows, changes.versions};
    deleted_ = changes.deleted;
    count += changes.keys.size();
  }
  return count;
}

absl::StatusOr<MergedRows::Step> MergedRows::Next(size_t row_count_max) {
  Step step;
  HPS_ASSIGN_OR_RETURN(step.read_count, Read());
  const auto before_change = changes_.keys.empty()
                                 ? base_.keys.end()
                                 : std::ranges::lower_bound(base_.keys, changes_.keys.front());
  if (before_change != base_.keys.begin()) {
    const auto count = static_cast<size_t>(before_change - base_.keys.begin());
    step.run = Take(std::min(count, row_count_max), base_);
  } else if (!changes_.keys.empty()) {
    if (!base_.keys.empty() && base_.keys.front() == changes_.keys.front()) Take(1, base_);
    const Run change = Take(1, changes_);
    if (deleted_.front() == 0) step.run = change;
    deleted_ = deleted_.subspan(1);
  } else {
    step.at_end = true;
  }
  return step;
}

}  // namespace hps
