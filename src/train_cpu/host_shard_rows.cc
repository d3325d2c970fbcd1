// Rows out of a host shard and into one.
#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "base/macros.h"
#include "base/out_of_memory.h"
#include "train/row_rounding.h"
#include "train_cpu/host_shard.h"

namespace hps {
std::vector<uint32_t> HostShard::SlotsSince(const DeltaMark& mark) const {
  std::vector<std::pair<Key, uint32_t>> found;
  for (uint32_t slot = 0; slot < rows_.slot_end(); ++slot) {
    const RowHeader& row = *rows_.at(slot);
    if (row.is_live && (mark.change == 0 || row.changed > mark.change || row.last_seen > mark.step))
      found.emplace_back(row.key, slot);
  }
  std::sort(found.begin(), found.end());
  std::vector<uint32_t> slots;
  slots.reserve(found.size());
  for (const auto& [key, slot] : found) slots.push_back(slot);
  return slots;
}

ShardRows HostShard::CopyRows(const std::vector<uint32_t>& slots, bool with_state) const {
  ShardRows copy;
  const size_t count = with_state ? width() : options_.dim;
  copy.keys.reserve(slots.size());
  copy.values.reserve(slots.size() * count);
  for (const uint32_t slot : slots) {
    RowHeader* const row = rows_.at(slot);
    copy.keys.push_back(row->key);
    copy.values.insert(copy.values.end(), ValuesOf(row), ValuesOf(row) + count);
    if (!with_state) continue;
    copy.last_seen.push_back(row->last_seen);
    copy.update_counts.push_back(row->updates);
  }
  copy.step = step_;
  copy.table_updates = totals_.updates;
  return copy;
}

ShardRows HostShard::CopyRowsWithState(const std::vector<uint32_t>& slots) const {
  ShardRows rows = CopyRows(slots, /*with_state=*/true);
  for (const auto& [key, pending] : pending_) rows.pending_keys.push_back(key);
  std::sort(rows.pending_keys.begin(), rows.pending_keys.end());
  for (const Key key : rows.pending_keys)
    rows.pending_counts.push_back(pending_.find(key)->second.count);
  return rows;
}

absl::StatusOr<ShardRows> HostShard::ReadRows(bool with_state) {
  try {
    EraseAllExpired();
    const std::vector<uint32_t> slots = SlotsSince({});
    return with_state ? CopyRowsWithState(slots) : CopyRows(slots, /*with_state=*/false);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("embedding table: no memory to read its rows");
  }
}

void HostShard::WriteRow(const ShardRows& rows, size_t i, bool with_state) {
  const Key key = rows.keys[i];
  uint32_t slot = index_.Find(key, KeyIndex::Hash(key));
  if (slot == kNoRow) slot = InsertRow(key);
  if (!pending_.empty()) pending_.erase(key);
  RowHeader* const row = rows_.at(slot);
  row->changed = change_;
  row->last_seen = with_state ? rows.last_seen[i] : step_;
  if (with_state) {
    row->updates = rows.update_counts[i];
    row->is_published = true;
  }
  const size_t count = with_state ? width() : options_.dim;
  std::copy_n(rows.values.begin() + static_cast<ptrdiff_t>(i * count), count, ValuesOf(row));
  RoundToNearest(options_.dtype, {ValuesOf(row), options_.dim});
}

absl::Status HostShard::WriteRows(const ShardRows& rows) {
  HPS_RETURN_IF_ERROR(ValidateRows(rows, options_));
  HPS_RETURN_IF_ERROR(CheckRoom(rows.keys.size()));
  const bool with_state = !rows.update_counts.empty();
  step_ = std::max(step_, rows.step);
  totals_.updates = std::max(totals_.updates, rows.table_updates);
  ++change_;
  try {
    for (size_t i = 0; i < rows.keys.size(); ++i) WriteRow(rows, i, with_state);
    for (size_t i = 0; i < rows.pending_keys.size(); ++i)
      pending_[rows.pending_keys[i]].count = rows.pending_counts[i];
  } catch (const std::bad_alloc&) {
    return OutOfMemory("embedding table: no memory for rows");
  }
  return absl::OkStatus();
}

absl::Status HostShard::EraseRows(std::span<const Key> keys) {
  ++change_;
  try {
    for (const Key key : keys) {
      const uint32_t slot = index_.Find(key, KeyIndex::Hash(key));
      if (slot != kNoRow) EraseRow(slot);
    }
  } catch (const std::bad_alloc&) {
    return OutOfMemory("embedding table: no memory to note erased rows");
  }
  return absl::OkStatus();
}

std::vector<Key> HostShard::ErasedKeys(DeltaReader reader) const {
  std::vector<Key> keys = marks_.ErasedKeys(reader);
  std::erase_if(keys, [this](Key key) { return index_.Find(key, KeyIndex::Hash(key)) != kNoRow; });
  return keys;
}

absl::StatusOr<ShardDelta> HostShard::CollectDelta(DeltaReader reader) {
  const bool is_saved = reader == DeltaReader::kCheckpoint;
  const DeltaMark mark = marks_.of(reader);
  try {
    ++change_;
    EraseAllExpired();
    ShardDelta delta{.through = {.change = change_, .step = step_}};
    // A row that a step had without changing it is of no interest to a publication.
    const std::vector<uint32_t> slots =
        SlotsSince(is_saved ? mark : DeltaMark{.change = mark.change, .step = kNumberMax});
    delta.changed = is_saved ? CopyRowsWithState(slots) : CopyRows(slots, /*with_state=*/false);
    for (const uint32_t slot : slots)
      (is_saved ? rows_.at(slot)->is_saved : rows_.at(slot)->is_published) = true;
    if (!is_saved || mark.change != 0) delta.erased = ErasedKeys(reader);
    return delta;
  } catch (const std::bad_alloc&) {
    return OutOfMemory("embedding table: no memory to collect changes");
  }
}

void HostShard::AcknowledgeDelta(DeltaReader reader, DeltaMark through) {
  marks_.Acknowledge(reader, through);
}

}  // namespace hps
