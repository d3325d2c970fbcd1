// Checks of queries that are common to all device caches. They do not look at keys.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "tier/device_cache.h"

namespace hps {

// `cache` names the cache in messages; `space` is that of the call's first query. Errors:
// INVALID_ARGUMENT (row bytes out of bounds or not the table's, a stride below them, a default row
// of another size, rows that can't be converted in place, another memory space).
absl::Status CheckDeviceQuery(const DeviceCacheQuery& query, MemorySpace space,
                              std::string_view cache);

// Checks the queries of one call that was leased for `keys_leased` keys. Errors: RESOURCE_EXHAUSTED
// (too many queries for a call, or more keys than leased), and those of CheckDeviceQuery.
absl::Status CheckDeviceQueries(std::span<const DeviceCacheQuery> queries, size_t keys_leased,
                                std::string_view cache);

}  // namespace hps
