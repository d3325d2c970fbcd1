// Properties common to all answers of a piece. Mostly all answers are the same, and then need not
// be looked at one by one.
#pragma once

#include <cstring>
#include <span>

#include "hps/types.h"
#include "tier/device_cache.h"

namespace hps {

// Whether an answer writes its own row; every other answer writes the default row.
inline bool TakesRow(KeyStatus status) {
  return status == KeyStatus::kHitL2 || status == KeyStatus::kHitL3;
}

// Whether all answers are the same. REQUIRES: there are some.
inline bool AreEqual(std::span<const KeyStatus> statuses) {
  // Each equals its predecessor.
  return std::memcmp(statuses.data(), statuses.data() + 1, statuses.size() - 1) == 0;
}

// The status common to all answers; kUnanswered if they differ, or if there are none.
inline KeyStatus StatusOfAll(std::span<const KeyStatus> statuses) {
  return !statuses.empty() && AreEqual(statuses) ? statuses[0] : kUnanswered;
}

}  // namespace hps
