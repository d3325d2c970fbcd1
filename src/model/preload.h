// Fills a table's upper levels: before it is served (the paper's initial cache rate), or with keys
// that are known to be hot. All are promotions like any other, so the fence holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/statusor.h"
#include "query/snapshot/served_table.h"

namespace hps {

// Inserts the first `share` of the table's rows in key order, or as many as fit: it ends when the
// level begins to evict, and when `go_on()` says no. Returns the rows inserted.
// Errors: DATA_LOSS (a damaged row; what came before it stays), those of LossyTable::Insert.
absl::StatusOr<uint64_t> PreloadTable(ServedTable& table, double share,
                                      const std::function<bool()>& go_on);

// Copies rows of `from`'s level 2 to that of `to`, which is empty, as many as `rows_max`, the
// warmest of them, while `go_on()`. Returns how many. REQUIRES: both are one incarnation with the
// same rows, of which none changes meanwhile. Errors: those of LossyTable; what was copied before
// stays.
absl::StatusOr<uint64_t> CarryWarmRows(ServedTable& from, ServedTable& to, uint64_t rows_max,
                                       const std::function<bool()>& go_on);

// As PreloadTable, for level 1 in a cache that the table is attached to, while `go_on()`. What is
// there already stays: beside it no more rows are sent than fit, `rows_that_fit` in all. Returns
// the rows sent. Errors: DATA_LOSS, DEADLINE_EXCEEDED (the device), those of
// DeviceCacheTable::Replace.
absl::StatusOr<uint64_t> PreloadDeviceTable(ServedTable& table, size_t cache, double share,
                                            uint64_t rows_that_fit,
                                            const std::function<bool()>& go_on);

// Sends the rows that levels 2 and 3 have for `keys` to level 1, batch by batch while `go_on()`.
// Returns how many. Errors: as above, those of DurableTable::Fetch.
absl::StatusOr<uint64_t> FillDeviceTable(ServedTable& table, size_t cache,
                                         std::span<const Key> keys,
                                         const std::function<bool()>& go_on);

}  // namespace hps
