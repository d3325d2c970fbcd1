#include "l3_pages/page_cursor.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {

absl::Status PageCursor::NextPage() {
  page_ = {};
  page_rows_ = 0;
  next_row_ = 0;
  if (!walk_.has_value() || walk_->AtEnd()) {
    if (next_part_ == table_.parts_.size()) return absl::OkStatus();
    const PageTable::OpenPart& part = table_.parts_[next_part_];
    HPS_RETURN_IF_ERROR(part.unreadable);
    if (part.file == nullptr) {
      return absl::DataLossError(absl::StrCat(
          part.part.path, ": the page file is damaged: the rows of keys ", part.part.first_key,
          " to ", part.part.last_key, " are lost; import the table again"));
    }
    walk_.emplace(*part.file);
    ++next_part_;
  }
  const PageFile& file = walk_->file();
  const size_t number = walk_->next_page();
  HPS_ASSIGN_OR_RETURN(const PageWalk::Page page, walk_->Next());
  if (!page.intact) {
    const PageKeyRange range = file.RangeOf(number);
    return absl::DataLossError(absl::StrCat(file.file().path(), ": page ", number,
                                            " is damaged: the rows of keys ", range.first, " to ",
                                            range.last, " are lost; import the table again"));
  }
  page_ = page.bytes;
  page_rows_ = file.description().rows_of_page(number);
  return absl::OkStatus();
}

absl::StatusOr<size_t> PageCursor::Next(std::span<Key> keys, HostRows rows,
                                        std::span<Version> versions) {
  const size_t row_count_max = std::min(keys.size(), rows.row_count);
  size_t done = 0;
  while (done < row_count_max) {
    if (next_row_ == page_rows_) HPS_RETURN_IF_ERROR(NextPage());
    if (page_.empty()) break;
    const PageShape& shape = walk_->file().description().shape;
    const size_t count = std::min(row_count_max - done, page_rows_ - next_row_);
    std::memcpy(keys.data() + done, page_.data() + shape.keys_offset() + next_row_ * sizeof(Key),
                count * sizeof(Key));
    if (!versions.empty()) {
      std::memcpy(versions.data() + done,
                  page_.data() + shape.versions_offset() + next_row_ * sizeof(Version),
                  count * sizeof(Version));
    }
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(rows.row(done + i),
                  page_.data() + shape.rows_offset() + (next_row_ + i) * shape.row_bytes,
                  shape.row_bytes);
    }
    done += count;
    next_row_ += count;
  }
  return done;
}

}  // namespace hps
