// Cuts a lookup of any size into pieces of at most `keys_max` keys.
//
// A query that does not fit into a piece is divided. A lookup that fits into one piece is not
// copied. For one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "hps/lookup_session.h"

namespace hps {

template <MemorySpace kSpace>
class CallPieces {
 public:
  // `row_bytes_of(table)`: bytes of an output row. REQUIRES: the queries are valid; keys_max > 0.
  template <typename RowBytesOf>
  CallPieces(std::span<const TableQuery<kSpace>> queries, size_t keys_max,
             const RowBytesOf& row_bytes_of)
      : queries_(queries), keys_max_(keys_max) {
    size_t key_count = 0;
    for (const TableQuery<kSpace>& query : queries) key_count += query.keys.size();
    if (key_count <= keys_max) return;
    whole_.assign(queries.begin(), queries.end());
    for (TableQuery<kSpace>& query : whole_) {
      if (query.row_stride_bytes == 0) query.row_stride_bytes = row_bytes_of(query.table);
    }
    Cut();
  }

  std::span<const TableQuery<kSpace>> piece() const { return whole_.empty() ? queries_ : piece_; }

  // False at the end.
  bool Next() {
    if (next_ == whole_.size()) return false;
    Cut();
    return true;
  }

 private:
  template <typename T>
  static SpanIn<T, kSpace> Part(const SpanIn<T, kSpace>& whole, size_t first, size_t count) {
    return whole.empty() ? whole : SpanIn<T, kSpace>(whole.data() + first, count);
  }

  void Cut() {
    piece_.clear();
    size_t room = keys_max_;
    while (next_ < whole_.size() && room > 0) {
      const TableQuery<kSpace>& query = whole_[next_];
      const size_t stride = query.row_stride_bytes;
      const size_t count = std::min(room, query.keys.size() - first_);
      const size_t rows_first = first_ * stride;
      piece_.push_back(
          {.table = query.table,
           .keys = Part<const Key>(query.keys, first_, count),
           .rows = Part<std::byte>(query.rows, rows_first,
                                   std::min(count * stride, query.rows.size() - rows_first)),
           .row_stride_bytes = stride,
           .status = Part<KeyStatus>(query.status, first_, count)});
      room -= count;
      first_ += count;
      if (first_ < query.keys.size()) continue;
      ++next_;
      first_ = 0;
    }
  }

  const std::span<const TableQuery<kSpace>> queries_;
  const size_t keys_max_;
  std::vector<TableQuery<kSpace>> whole_;  // empty: one piece
  std::vector<TableQuery<kSpace>> piece_;
  size_t next_ = 0;   // the query that the next piece begins with,
  size_t first_ = 0;  // at this key
};

}  // namespace hps
