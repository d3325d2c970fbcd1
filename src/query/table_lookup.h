// One table's part of a call, on its way through the levels: the unit in which levels are asked.
//
// A call may name a table in several queries; their misses are one list, so that no key is asked of
// a lower level twice.
//
// Plain data, reused from call to call by its session; for one thread. Every unique key in `misses`
// is answered exactly once, by Answer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "query/fetch/fetch_job.h"
#include "query/miss_list.h"
#include "query/query_lookup.h"
#include "serving/live_table.h"
#include "serving/lookup_counters.h"

namespace hps {

struct TableLookup {
  // The highest level of the table that the call asks; the hit-rate threshold refers to it.
  enum class Top : uint8_t { kL1, kL2, kL3 };
  // Of a call that does not ask level 1.
  static Top TopOnHost(const LiveTable& table) { return table.l2().empty() ? Top::kL3 : Top::kL2; }

  LiveTable* table = nullptr;
  LookupCounters* counters = nullptr;
  QueryLookup* queries = nullptr;  // of the whole call
  QueryLookup* first_query = nullptr;
  QueryLookup* last_query = nullptr;
  uint64_t key_count = 0;  // of all its queries

  double hit_rate_threshold = 1.0;
  ApplyEpoch epoch = 0;  // read before the first fetch
  Top top = Top::kL3;
  // By part of level 2: it is there, is not bypassed, and has not been asked yet.
  std::array<bool, kL2PartsMax> asks_l2{};
  size_t level = kNoLevel;  // that LevelFetch asks at the moment
  size_t cache = kNoCache;  // L1 that takes promotions

  MissList misses;
  uint64_t missed_positions = 0;  // of `misses`, duplicates included

  // The number of one of the table's queries in the call.
  uint32_t NumberOf(const QueryLookup& query) const {
    return static_cast<uint32_t>(&query - queries);
  }
  // A fetch of some of its keys.
  FetchJob::Spec JobAt(size_t asked_level, Deadline deadline) const {
    return {table, counters, asked_level, cache, epoch, deadline};
  }
  bool has_one_query() const { return first_query == last_query; }

  // Answers unique key number `index` of `misses` at all its places: with `row`, which has the
  // table's dtype, or with the default row if `row` is null.
  void Answer(uint32_t index, KeyStatus key_status, const std::byte* row) {
    if (!misses.has_places()) {
      first_query->Answer(index, key_status, row);
      return;
    }
    for (const MissList::Entry& entry : misses.places(index))
      queries[entry.query].Answer(entry.place, key_status, row);
  }
};

}  // namespace hps
