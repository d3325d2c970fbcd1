// One piece of a lookup: what it asks, and how far it is.
//
// A lookup of few keys is one piece. Of a large one on a device, the next piece is begun while the
// misses of the present one are answered, so a session has two of these and lets them take turns.
//
// For one thread. Allocates when it is made.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/limits.h"
#include "query/cache_lookup.h"
#include "query/miss_list.h"
#include "query/query_lookup.h"
#include "query/table_lookup.h"

namespace hps {

struct PieceLookup {
  // Of at most `keys_max` keys, of a session with `table_count` tables; through `device_cache`,
  // unless it is null.
  PieceLookup(size_t keys_max, size_t table_count, DeviceCache* device_cache)
      : arena(keys_max, kTablesPerCallMax), table_by_index(table_count) {
    if (device_cache != nullptr) cache = std::make_unique<CacheLookup>(*device_cache, keys_max);
    queries.reserve(kTablesPerCallMax);
    tables.reserve(kTablesPerCallMax);
  }

  MissArena arena;
  // Their addresses stay: they refer to each other.
  std::vector<QueryLookup> queries;
  std::vector<TableLookup> tables;
  std::vector<TableLookup*> table_by_index;  // null = not in the piece yet
  std::unique_ptr<CacheLookup> cache;        // null without a cache
};

}  // namespace hps
