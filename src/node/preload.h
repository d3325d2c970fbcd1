// Fills a table's upper levels, before it is served (the paper's initial cache rate) or with keys
// that are known to be hot. All insertions are promotions, so the fence (tier/fence.h) applies.
//
// All functions stop early when `go_on()` returns false.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "serving/live_table.h"

namespace hps {

// Inserts the first `share` of the table's rows in key order into free places of each part of level
// 2, and stops when no part has any. Returns the number of rows that the first part took.
// Errors: DATA_LOSS (a damaged row; earlier rows stay), those of LossyTable::Insert.
absl::StatusOr<uint64_t> PreloadTable(LiveTable& table, double share,
                                      const std::function<bool()>& go_on);

// As PreloadTable, for level 1 in the cache number `cache`, to which the table is attached. Stops
// when next to no row finds a place. Returns the number of rows sent.
// Errors: DATA_LOSS, DEADLINE_EXCEEDED (the device), those of DeviceCacheTable::InsertIfAbsent.
absl::StatusOr<uint64_t> PreloadDeviceTable(LiveTable& table, size_t cache, double share,
                                            const std::function<bool()>& go_on);

// Reads the rows of `keys` from levels 2 and 3 and sends them to level 1, batch by batch. Returns
// the number of rows. Errors: as above, those of DurableTable::Fetch.
absl::StatusOr<uint64_t> FillDeviceTable(LiveTable& table, size_t cache, std::span<const Key> keys,
                                         const std::function<bool()>& go_on);

}  // namespace hps
