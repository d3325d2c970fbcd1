// What all device caches ask of a query before they look at a key.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "tier/device_cache.h"

namespace hps {

// `cache`: which cache asks, for messages. `space`: of the call's first query.
// Errors: INVALID_ARGUMENT (row bytes out of bounds or not the table's, a stride below them, a
// default row of another size, rows that can't be widened in their places, another memory space).
absl::Status CheckDeviceQuery(const DeviceCacheQuery& query, MemorySpace space,
                              std::string_view cache);

// The queries of one call, which was leased for `keys_leased` keys.
// Errors: RESOURCE_EXHAUSTED (more queries than a call has, or more keys than were leased), those
// of CheckDeviceQuery.
absl::Status CheckDeviceQueries(std::span<const DeviceCacheQuery> queries, size_t keys_leased,
                                std::string_view cache);

}  // namespace hps
