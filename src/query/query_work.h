// One query's part of a call: where its answers go.
//
// Plain data, reused from call to call by its session; for one thread. Every position gets exactly
// one answer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "hps/lookup_session.h"
#include "query/row_writer.h"
#include "tier/device_cache.h"

namespace hps {

struct TableWork;

struct QueryWork {
  TableWork* table = nullptr;
  QueryWork* next_of_table = nullptr;  // the next query of the call that names the same table
  const Key* keys = nullptr;
  size_t key_count = 0;
  KeyStatus* status = nullptr;  // null = not wanted
  RowWriter out;
  LookupCounts counts;  // of positions

  // In a call through a cache the answers for the query's misses are collected here, for the device
  // to spread; else they go straight to the caller's rows.
  bool staged = false;
  size_t first_miss = 0;     // a number for its first miss that is greater than those before it
  size_t fetched_ahead = 0;  // so many of its misses L2 is asked for while the device probes
  HostRows staged_rows;      // of all misses; without memory while none of the others is open
  std::span<KeyStatus> staged_status;  // kUnanswered before the answer, and after it has been sent
  size_t answered_begin = SIZE_MAX;    // what has been answered and not been sent lies in
  size_t answered_end = 0;             // [answered_begin, answered_end)

  // `place` is the index of a miss where the query is staged, else a position; `row` is in the
  // table's dtype, null = the default row.
  void Answer(size_t place, KeyStatus key_status, const std::byte* row) {
    if (staged) {
      StageAnswer(place, key_status, row);
    } else {
      AnswerPosition(place, key_status, row);
    }
  }

  void AnswerPosition(size_t position, KeyStatus key_status, const std::byte* row) {
    if (row != nullptr) {
      out.Write(position, row);
    } else {
      out.WriteDefault(position);
    }
    if (status != nullptr) status[position] = key_status;
    ++counts[key_status];
  }

 private:
  void StageAnswer(size_t miss, KeyStatus key_status, const std::byte* row) {
    staged_status[miss] = key_status;
    if (row != nullptr) std::memcpy(staged_rows.row(miss), row, staged_rows.row_bytes);
    answered_begin = std::min(answered_begin, miss);
    answered_end = std::max(answered_end, miss + 1);
  }
};

}  // namespace hps
