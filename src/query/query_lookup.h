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
#include "query/output_rows.h"
#include "tier/device_cache.h"

namespace hps {

struct TableLookup;

struct QueryLookup {
  TableLookup* table = nullptr;
  QueryLookup* next_of_table = nullptr;  // the next query of the call that names the same table
  const Key* keys = nullptr;
  size_t key_count = 0;
  KeyStatus* status = nullptr;  // null = not wanted
  OutputRows out;
  LookupCounts counts;  // of positions

  // In a call through a device cache, the answers to the query's misses are collected here, and the
  // device scatters them. In other calls they go straight to the caller's rows.
  bool staged = false;
  size_t first_miss = 0;     // number of its first miss; grows over the queries of the call
  size_t fetched_ahead = 0;  // misses that L2 is asked for while the device probes
  HostRows staged_rows;      // of all misses; no memory if no other miss is pending
  std::span<KeyStatus> staged_status;  // kUnanswered before the answer, and after it has been sent
  // The device reads level 2 for this query; when the misses are known: it has answered all of
  // them.
  bool direct = false;
  size_t answered_begin = SIZE_MAX;  // answered and not yet sent: the range
  size_t answered_end = 0;           // [answered_begin, answered_end)

  // `place` is the index of a miss where the query is staged, else a position; `row` is in the
  // table's dtype, null = the default row.
  void Answer(size_t place, KeyStatus key_status, const std::byte* row) {
    if (!staged) return AnswerPosition(place, key_status, row);
    staged_status[place] = key_status;
    if (row != nullptr) std::memcpy(staged_rows.row(place), row, staged_rows.row_bytes);
    answered_begin = std::min(answered_begin, place);
    answered_end = std::max(answered_end, place + 1);
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
};

}  // namespace hps
