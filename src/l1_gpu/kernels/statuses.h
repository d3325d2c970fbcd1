// What the answers of a piece have in common: mostly they are all the same, and then need not be
// looked at one by one.
#pragma once

#include <cstring>
#include <span>

#include "hps/types.h"
#include "tier/device_cache.h"

namespace hps {

// Whether an answer brings its row; what else there is gets the default row.
inline bool TakesRow(KeyStatus status) {
  return status == KeyStatus::kHitL2 || status == KeyStatus::kHitL3;
}

// The status that all answers have; kUnanswered where they differ, or there are none.
inline KeyStatus StatusOfAll(std::span<const KeyStatus> statuses) {
  if (statuses.empty()) return kUnanswered;
  // Each is what the one before it is.
  const bool same = std::memcmp(statuses.data(), statuses.data() + 1, statuses.size() - 1) == 0;
  return same ? statuses[0] : kUnanswered;
}

}  // namespace hps
