// One table's part of a call, on its way through the levels.
//
// Plain data, reused from call to call by its session; for one thread. Every unique key in `misses`
// is answered exactly once, by Answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "hps/lookup_session.h"
#include "query/fetch_job.h"
#include "query/lookup_counters.h"
#include "query/miss_list.h"
#include "query/row_writer.h"
#include "query/served_table.h"

namespace hps {

struct QueryWork {
  // The highest level that is configured for the table: the hit-rate threshold is about it.
  enum class Top : uint8_t { kL1, kL2, kL3 };

  // What was asked.
  ServedTable* table = nullptr;
  LookupCounters* counters = nullptr;
  const Key* keys = nullptr;
  size_t key_count = 0;
  bool keys_on_host = true;
  KeyStatus* status = nullptr;  // null = not wanted
  RowWriter out;

  // How it is answered.
  double hit_rate_threshold = 1.0;
  ApplyEpoch epoch = 0;  // read before the first fetch
  Top top = Top::kL3;
  bool l2_usable = false;   // there is one, and it is not passed by
  size_t cache = kNoCache;  // L1 that takes promotions
  MissList misses;
  // In a call through a cache, the answers for `misses` are collected here, for the device to
  // spread; else they go straight to the caller's rows.
  bool staged = false;
  uint64_t missed_positions = 0;
  HostRows staged_rows;
  std::span<KeyStatus> staged_status;

  LookupCounts counts;  // of positions

  // Answers unique key number `index` of `misses` at all its positions: with `row`, which is in the
  // table's dtype, or, when it is null, with the default row.
  void Answer(uint32_t index, KeyStatus key_status, const std::byte* row) {
    if (staged) {
      staged_status[index] = key_status;
      if (row != nullptr) std::memcpy(staged_rows.row(index), row, staged_rows.row_bytes);
      return;
    }
    for (const MissList::Entry& entry : misses.positions(index))
      AnswerPosition(entry.position, key_status, row);
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
