// Divides a level's memory among tables.
//
// A table with a configured budget gets that budget. The other tables divide the rest: if all of
// them fit, each gets what it needs, and the remainder stays free for later models. Otherwise each
// gets its minimum and an equal part of the rest, but no more than it needs (rows x row bytes, plus
// the level's overhead); what small tables leave, large ones divide. The reason: a model asks each
// of its tables for one key per sample. So a byte is worth most to a small table, and as much to
// one large table as to another.
//
// Dividing never fails: a table for which too little is left gets 0 and is served without the
// level.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace hps {

struct BudgetRequest {
  uint64_t least_bytes = 0;               // minimum budget of a table; <= needed_bytes
  uint64_t needed_bytes = 0;              // to hold every row
  std::optional<double> share{};          // configured budget, as a share of needed_bytes
  std::optional<uint64_t> fixed_bytes{};  // configured budget in bytes
  uint64_t held_bytes = 0;                // current budget of a live table; 0 = none

  // False for a table that the configuration keeps out of the level.
  bool wants_any() const { return share != 0.0 && fixed_bytes != uint64_t{0}; }
};

// The budget of each table, in the order of `requests`: 0, or at least its least_bytes. Their sum
// is at most `bytes_max`. Configured budgets and minimums are granted in the order of `requests`.
// Ignores held_bytes.
std::vector<uint64_t> DivideBudget(uint64_t bytes_max, std::span<const BudgetRequest> requests);

// The same if some tables are live. Budgets of live tables cannot be resized in place: a result
// that differs from held_bytes means that the table must be re-created with the new budget.
// Therefore live tables never grow. They shrink, the largest excess over their fair share first,
// only if the new tables would get less than three quarters of their fair share from the free
// memory. In that case a sixteenth of the level is kept free for the next small table. REQUIRES:
// the sum of held_bytes is at most `bytes_max`.
std::vector<uint64_t> RedivideBudget(uint64_t bytes_max, std::span<const BudgetRequest> requests);

// needed_bytes of a table whose rows need `bytes` in the level. UINT64_MAX means that one table
// cannot hold so many rows; the result is then the size of the rows alone, because an infinite need
// would take the shares of all other tables.
uint64_t NeedOf(uint64_t bytes, uint64_t row_count, size_t row_bytes);

// The number of rows that fit into a budget of `bytes`; `bytes_for` is the level's memory need.
uint64_t RowsThatFit(
    uint64_t bytes, size_t row_bytes,
    const std::function<uint64_t(uint64_t row_count, size_t row_bytes)>& bytes_for);

}  // namespace hps
