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
// level. Budgets are fixed when a model is loaded: a table that is served keeps its budget, and
// later tables divide the bytes that no table holds (node/served_models.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace hps {

struct BudgetRequest {
  uint64_t least_bytes = 0;               // minimum budget of a table; <= needed_bytes
  uint64_t needed_bytes = 0;              // to hold every row
  std::optional<double> share{};          // configured budget, as a share of needed_bytes
  std::optional<uint64_t> fixed_bytes{};  // configured budget in bytes
  std::string table{};                    // its name, for the log
  bool waits = false;                     // its model is not loaded yet: the part is kept for it

  // False for a table that the configuration keeps out of the level.
  bool wants_any() const { return share != 0.0 && fixed_bytes != uint64_t{0}; }
};

// The budget of each table, in the order of `requests`: 0, or at least its least_bytes. Their sum
// is at most `bytes_max`. Configured budgets and minimums are granted in the order of `requests`.
std::vector<uint64_t> DivideBudget(uint64_t bytes_max, std::span<const BudgetRequest> requests);

// A level when models are loaded, and how the log names it.
struct LevelRoom {
  const char* level = "";              // "level 2"
  const char* setting = "";            // of its bytes_max
  const char* without = "";            // what a table without a part of it "is"
  uint64_t bytes_max = 0;              // of the whole level
  uint64_t bytes_left = 0;             // to be divided
  std::set<std::string> holders = {};  // models whose tables have the rest
};
// As DivideBudget of `bytes_left`. Logs a warning for each table that gets no budget, or less than
// half of the budget that it would get of the whole level; the warning says how to give it more.
std::vector<uint64_t> DivideRoom(const LevelRoom& room, std::span<const BudgetRequest> requests);

// needed_bytes of a table whose rows need `bytes` in the level. UINT64_MAX means that one table
// cannot hold so many rows; the result is then the size of the rows alone, because an infinite need
// would take the shares of all other tables.
uint64_t NeedOf(uint64_t bytes, uint64_t row_count, size_t row_bytes);

// The number of rows that fit into a budget of `bytes`; `bytes_for` is the level's memory need.
uint64_t RowsThatFit(
    uint64_t bytes, size_t row_bytes,
    const std::function<uint64_t(uint64_t row_count, size_t row_bytes)>& bytes_for);

}  // namespace hps
