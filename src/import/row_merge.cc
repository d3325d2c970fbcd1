#include "import/row_merge.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {

absl::Status DuplicateKeyError(const std::string& keys_path, Key key, uint64_t position,
                               uint64_t other_position) {
  return absl::InvalidArgumentError(absl::StrCat(
      keys_path, ": key ", key, " occurs twice, at rows ", std::min(position, other_position),
      " and ", std::max(position, other_position), " (counted from 0)"));
}

RowMerge::RowMerge(std::span<const RunSlice> slices, size_t row_bytes, std::span<std::byte> buffer,
                   std::string keys_path, RepeatedKeys repeated)
    : row_bytes_(row_bytes), keys_path_(std::move(keys_path)), repeated_(repeated) {
  const size_t record_bytes = kRecordHeadBytes + row_bytes;
  const size_t share = buffer.size() / std::max<size_t>(slices.size(), 1) / record_bytes;
  cursors_.reserve(slices.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    const bool spilled = slices[i].run->spill != nullptr;
    cursors_.emplace_back(slices[i], row_bytes,
                          spilled ? buffer.subspan(i * share * record_bytes, share * record_bytes)
                                  : std::span<std::byte>());
  }
}

absl::Status RowMerge::Start() {
  started_ = true;
  heap_.reserve(cursors_.size());
  for (size_t i = 0; i < cursors_.size(); ++i) {
    HPS_RETURN_IF_ERROR(cursors_[i].Advance());
    if (!cursors_[i].done()) heap_.push_back({cursors_[i].key(), i});
  }
  for (size_t i = heap_.size() / 2; i-- > 0;) SiftDown(i);
  return absl::OkStatus();
}

void RowMerge::SiftDown(size_t index) {
  const Node moving = heap_[index];
  while (true) {
    size_t child = 2 * index + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1].key < heap_[child].key) ++child;
    if (heap_[child].key >= moving.key) break;
    heap_[index] = heap_[child];
    index = child;
  }
  heap_[index] = moving;
}

absl::Status RowMerge::AdvanceTop() {
  RunCursor& cursor = cursors_[heap_[0].cursor];
  HPS_RETURN_IF_ERROR(cursor.Advance());
  if (cursor.done()) {
    heap_[0] = heap_.back();
    heap_.pop_back();
    if (heap_.empty()) return absl::OkStatus();
  } else {
    heap_[0].key = cursor.key();
  }
  SiftDown(0);
  return absl::OkStatus();
}

absl::Status RowMerge::SkipRepeated(std::byte* row) {
  while (!heap_.empty() && heap_[0].key == last_->key) {
    const RunCursor& cursor = cursors_[heap_[0].cursor];
    if (cursor.position() > last_->position) {
      last_->position = cursor.position();
      std::memcpy(row, cursor.row(), row_bytes_);
    }
    HPS_RETURN_IF_ERROR(AdvanceTop());
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> RowMerge::Next(std::span<Key> keys, std::span<uint64_t> positions,
                                      HostRows rows) {
  if (!started_) HPS_RETURN_IF_ERROR(Start());
  size_t count = 0;
  while (count < keys.size() && !heap_.empty()) {
    const RunCursor& cursor = cursors_[heap_[0].cursor];
    if (last_.has_value() && last_->key == cursor.key()) {
      return DuplicateKeyError(keys_path_, FromOrderedKey(cursor.key()), last_->position,
                               cursor.position());
    }
    last_ = {cursor.key(), cursor.position()};
    keys[count] = FromOrderedKey(cursor.key());
    std::memcpy(rows.row(count), cursor.row(), row_bytes_);
    HPS_RETURN_IF_ERROR(AdvanceTop());
    if (repeated_ == RepeatedKeys::kLastCounts) HPS_RETURN_IF_ERROR(SkipRepeated(rows.row(count)));
    if (!positions.empty()) positions[count] = last_->position;
    ++count;
  }
  return count;
}

}  // namespace hps
