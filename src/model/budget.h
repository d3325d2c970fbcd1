// Divides a level's bytes over tables.
//
// A table with a budget of its own gets that; the others share what is left. When all of them fit,
// each gets what it needs and the rest stays free for models that come later; else each gets the
// least that a table can live on, and of the rest its share by need, which is rows x row bytes and
// the level's overhead for them.
//
// Dividing never fails: a table for which nothing is left gets 0 and is served without the level.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace hps {

struct BudgetRequest {
  uint64_t least_bytes = 0;               // below it a table is of no use; <= needed_bytes
  uint64_t needed_bytes = 0;              // to hold every row
  std::optional<double> share{};          // of needed_bytes, instead of a part of what is left
  std::optional<uint64_t> fixed_bytes{};  // likewise
  uint64_t held_bytes = 0;                // by a table that is served; 0 = it has none yet

  // False for a table that is to stay out of the level.
  bool wants_any() const { return share != 0.0 && fixed_bytes != uint64_t{0}; }
};

// The bytes of each table, in the order of `requests`: 0, or at least its least. Their sum is at
// most `bytes_max`. Who comes first gets its least, or its own budget, first. Ignores what is held.
std::vector<uint64_t> DivideBudget(uint64_t bytes_max, std::span<const BudgetRequest> requests);

// The same beside tables that are served. What these hold can't be resized, only given up: a part
// that differs from held_bytes means that the table is to be opened anew, with what fits. So
// none grows, but those that hold nothing; and some shrink, the largest excess over their fair part
// first, only where the new tables would get less than three quarters of theirs from what is free.
// Then a sixteenth of the level is kept free, so that the next small table finds room as it is.
// REQUIRES: the sum of held_bytes is at most `bytes_max`.
std::vector<uint64_t> RedivideBudget(uint64_t bytes_max, std::span<const BudgetRequest> requests);

// needed_bytes of a table whose level says that its rows need `bytes`. UINT64_MAX is more than the
// level can have in one table: then what the rows take alone, because a need without end would take
// the parts of all others.
uint64_t NeedOf(uint64_t bytes, uint64_t row_count, size_t row_bytes);

// How many rows of that width a table of `bytes` holds, where `bytes_for` says what rows need.
uint64_t RowsThatFit(
    uint64_t bytes, size_t row_bytes,
    const std::function<uint64_t(uint64_t row_count, size_t row_bytes)>& bytes_for);

}  // namespace hps
