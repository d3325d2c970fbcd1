// Divides a level's bytes over tables.
//
// A table with a budget of its own gets that; the others share what is left. When all of them fit,
// each gets what it needs and the rest stays free for models that come later; else each gets the
// least that a table can live on, and of the rest its share by need, which is rows x row bytes and
// the level's overhead for them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hps {

struct BudgetRequest {
  std::string table{};                    // for messages
  uint64_t least_bytes = 0;               // below it a table is of no use; <= needed_bytes
  uint64_t needed_bytes = 0;              // to hold every row
  std::optional<double> share{};          // of needed_bytes, instead of a part of what is left
  std::optional<uint64_t> fixed_bytes{};  // likewise
};

// The bytes of each table, in the order of `requests`; 0 = the table stays out of the level. Their
// sum is at most `bytes_left`.
// Errors: RESOURCE_EXHAUSTED, with what is asked for and what is left.
absl::StatusOr<std::vector<uint64_t>> DivideBudget(uint64_t bytes_left,
                                                   std::span<const BudgetRequest> requests);

}  // namespace hps
