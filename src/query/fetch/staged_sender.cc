#include "query/fetch/staged_sender.h"

#include <algorithm>

namespace hps {

// Neighbouring pieces of one width are copied together. Every copy has a cost of its own. The first
// copy is small, since the device has nothing else to do. Each next copy is as large as all copies
// before it: while those travel, as much more is fetched.
void StagedSender::CopyAhead() {
  const GatherWork& fetched = pieces_.TakeFetched();
  const GatherWork ready = fetched.pieces <= ahead_end_.pieces ? fetched : ahead_end_;
  const bool is_last = ready.pieces == ahead_end_.pieces;
  const uint64_t least =
      is_last ? 1
              : std::clamp<uint64_t>(copied_ahead_.bytes, tuning_.copy_ahead_bytes_min,
                                     tuning_.bring_bytes_max);
  if (ready.bytes - copied_ahead_.bytes < least) return;
  HostRows rows;
  for (size_t i = copied_ahead_.pieces; i < ready.pieces; ++i) {
    StagedPiece& piece = pieces_[i];
    piece.on_device = piece.hit_count > 0;
    if (!piece.on_device) continue;
    if (rows.row_count > 0 && rows.row_bytes == piece.rows.row_bytes &&
        rows.row(rows.row_count) == piece.rows.data) {
      rows.row_count += piece.keys.size();
      continue;
    }
    lookup_->CopyAhead(rows);
    rows = piece.rows;
  }
  lookup_->CopyAhead(rows);
  copied_ahead_ = ready;
}

void StagedSender::Send(size_t bytes_min) {
  const GatherWork& fetched = pieces_.TakeFetched();
  if (fetched.pieces <= sent_.pieces || fetched.bytes - sent_.bytes < bytes_min) return;
  Send(sent_.pieces, fetched.pieces);
  sent_ = fetched;
}

void StagedSender::Send(size_t first_piece, size_t end_piece) {
  ready_.clear();
  for (size_t i = first_piece; i < end_piece; ++i) {
    pieces_.Prefetch(i);
    if (pieces_[i].hit_count + pieces_[i].absent_count > 0) AddReady(pieces_[i]);
  }
  lookup_->Send(ready_, DeadlineAfter(clock_, wait_max_));
  for (size_t i = first_piece; i < end_piece; ++i)
    std::fill_n(pieces_[i].statuses, pieces_[i].keys.size(), kUnanswered);
}

void StagedSender::AddReady(const StagedPiece& piece) {
  const TableLookup& table = *piece.table;
  const size_t query = table.NumberOf(*table.first_query);
  // Read after the rows were fetched: a change that has begun later is in none of them.
  const bool changed = table.table->epochs().begun() > table.epoch;
  if (!ready_.empty()) {
    DeviceRowPiece& last = ready_.back();
    if (last.query == query && last.first + last.statuses.size() == piece.first &&
        last.rows.row(last.rows.row_count) == piece.rows.data &&
        last.on_device == piece.on_device) {
      last.statuses = {last.statuses.data(), last.statuses.size() + piece.keys.size()};
      last.rows.row_count += piece.keys.size();
      last.reprobe |= changed;
      return;
    }
  }
  ready_.push_back({.query = query,
                    .first = piece.first,
                    .statuses = {piece.statuses, piece.keys.size()},
                    .rows = piece.rows,
                    .reprobe = changed,
                    .on_device = piece.on_device});
}

}  // namespace hps
