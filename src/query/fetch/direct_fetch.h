// Asks the first part of an L2, if it can't block, for all positions of a query, duplicates
// included. It writes its rows straight into the caller's buffer. If rows have to be converted,
// they pass through a small buffer.
//
// Only for calls without a level above L2, because promotion never reads the caller's rows. Belongs
// to one session; for one thread; allocates nothing after it was made.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "query/table_lookup.h"

namespace hps {

class DirectFetch {
 public:
  // `keys_max` is of a call, `row_bytes_max` of the widest row that is converted, 0 = none is.
  DirectFetch(size_t keys_max, size_t row_bytes_max);

  // Asks the part, and answers the keys that it has or knows to be absent. False: nothing was
  // answered, because it is bypassed, can block, or failed (then this call does not use it again).
  bool Fetch(TableLookup& table, QueryLookup& query, Deadline deadline);

  // After Fetch was true: whether every position has been answered, and which.
  bool answered_all() const { return answered_all_; }
  bool IsAnswered(size_t position) const {
    return outcomes_[position] == FetchOutcome::kHit ||
           outcomes_[position] == FetchOutcome::kAbsent;
  }

 private:
  absl::StatusOr<FetchCounts> FetchRows(QueryLookup& query, Deadline deadline);
  void NoteOutcomes(QueryLookup& query, const FetchCounts& counts);

  const std::unique_ptr<FetchOutcome[]> outcomes_;  // [keys_max]
  std::vector<std::byte> native_rows_;              // a chunk of rows that wait for conversion
  bool answered_all_ = false;
};

}  // namespace hps
