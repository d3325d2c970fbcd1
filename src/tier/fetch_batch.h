// The request to a tier and its answer: one batch of keys of one table.
//
// A tier knows neither its level nor its neighbours, so it answers with an outcome. The read path
// converts outcomes to the KeyStatus of the level.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hps/span.h"
#include "hps/types.h"

namespace hps {

enum class FetchOutcome : uint8_t {
  kMiss = 0,  // the tier can't tell
  kHit,       // the row was written
  kAbsent,    // the durable tier has no such key (said by it, or remembered by a lossy tier)
  kLost,      // the row exists but can't be read, because it is damaged
};

// FetchBatch::deletions of a key that may have been deleted at any time.
inline constexpr Version kDeletionUnknown = ~Version{0};

// The caller owns all memory until Fetch returns. Duplicate keys are allowed.
struct FetchBatch {
  std::span<const Key> keys;         // [n]
  HostRows rows;                     // n rows; row i is written for kHit only, else left untouched
  std::span<FetchOutcome> outcomes;  // [n], every one is written
  std::span<Version> versions{};     // [n] or empty; written for kHit only
  // A device reads the rows next, which is slower from a processor's cache than from memory.
  bool rows_go_to_device = false;
  // [n] or empty, of the durable tier; means something for kAbsent only: the version of the key's
  // deletion, 0 = not deleted since its table's import, or kDeletionUnknown.
  std::span<Version> deletions{};
};

// The number of keys with each outcome; the sum is the batch's key count.
struct FetchCounts {
  uint64_t misses = 0;
  uint64_t hits = 0;
  uint64_t absent = 0;
  uint64_t lost = 0;
};

}  // namespace hps
