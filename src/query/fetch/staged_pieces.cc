#include "query/fetch/staged_pieces.h"

#include <algorithm>

namespace hps {

void StagedPieces::RunPiece(size_t number) {
  StagedPiece& piece = pieces_[number];
  const size_t count = piece.keys.size();
  const std::span<FetchOutcome> outcomes(piece.outcomes, count);
  const FetchBatch batch = {
      .keys = piece.keys, .rows = piece.rows, .outcomes = outcomes, .rows_go_to_device = true};
  const absl::StatusOr<FetchCounts> counts =
      piece.table->table->l2()[0].table().Fetch(batch, kNoDeadline);
  piece.code = counts.status().code();
  piece.hit_count = counts.ok() ? counts->hits : 0;
  piece.absent_count = counts.ok() ? counts->absent : 0;
  if (!counts.ok()) std::fill(outcomes.begin(), outcomes.end(), FetchOutcome::kMiss);
  for (size_t i = 0; i < count; ++i) {
    piece.statuses[i] = outcomes[i] == FetchOutcome::kHit      ? KeyStatus::kHitL2
                        : outcomes[i] == FetchOutcome::kAbsent ? KeyStatus::kAbsent
                                                               : kUnanswered;
  }
  piece.fetched.store(true, std::memory_order_release);
}

}  // namespace hps
