// What all device caches assert of the queries of a call. They do not look at keys.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <span>

#include "base/limits.h"
#include "base/macros.h"
#include "tier/device_cache.h"

namespace hps {

// REQUIRES, of a call that was leased for `keys_leased` keys: at most kTablesPerCallMax queries, no
// more keys than leased, one memory space, rows and a default row of the table's size, a stride not
// below it, and for rows to be converted a place of twice their size on the device.
inline void CheckDeviceQueries(std::span<const DeviceCacheQuery> queries, size_t keys_leased) {
  HPS_CHECK(queries.size() <= kTablesPerCallMax);
  for (const DeviceCacheQuery& query : queries) {
    HPS_CHECK(query.space == queries.front().space);
    HPS_CHECK(query.key_count <= keys_leased);
    keys_leased -= query.key_count;
    HPS_CHECK(query.row_bytes > 0 && query.row_bytes <= kRowBytesMax);
    HPS_CHECK(query.row_bytes <= query.row_stride_bytes);
    HPS_CHECK(query.table == nullptr || query.table->row_bytes() == query.row_bytes);
    HPS_CHECK(query.default_row.empty() || query.default_row.size() == query.row_bytes);
    HPS_CHECK(query.convert_from == Dtype::kFloat32 ||
              (query.space == MemorySpace::kDevice && query.row_bytes % 2 == 0 &&
               query.row_stride_bytes >= 2 * query.row_bytes));
  }
}

}  // namespace hps
