// One part of a table's level 2: memory, Redis, or memory and then Redis.
//
// A lookup asks the parts in their order, each for the keys that those before it lack, and then
// level 3. A row that it finds in a part, or in level 3, is inserted into the parts before. Parts
// fail one by one: each has its own health, and a lookup goes on to the next one.
//
// No reader gets a row that is older than one shown before, because
//   - a change raises the watermarks of all parts before anything else, then changes level 3, and
//     then the parts in reverse order. So a reader that misses in a part and gets the new row from
//     below leaves no older row behind in the part;
//   - a lookup that took rows from below while a change was open asks the parts before once more,
//     and what they answer counts (FetchJob::Revalidate): an insertion that was under way may have
//     put an older row there after the lookup had missed.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "base/circuit_breaker.h"
#include "base/clock.h"
#include "serving/level_health.h"
#include "tier/direct_rows.h"
#include "tier/fence.h"
#include "tier/lossy_tier.h"
#include "tier/shared_table.h"

namespace hps {

inline constexpr size_t kL2PartsMax = 2;

class L2Part {
 public:
  struct Opened {
    std::unique_ptr<LossyTable> table;
    LossyTier* tier = nullptr;      // asks `table` together with others; null: it is asked alone
    SharedTable* shared = nullptr;  // `table`, if several nodes share it
    std::string_view name = "level 2";  // in messages; a literal
  };

  // REQUIRES: there is a table. `epochs` are of its LiveTable.
  L2Part(Opened opened, const ApplyEpochs& epochs) : opened_(std::move(opened)), health_(epochs) {}
  L2Part(const L2Part&) = delete;
  L2Part& operator=(const L2Part&) = delete;

  LossyTable& table() const { return *opened_.table; }
  LossyTier* tier() const { return opened_.tier; }
  SharedTable* shared() const { return opened_.shared; }
  std::string_view name() const { return opened_.name; }
  bool can_block() const { return opened_.table->can_block(); }

  // Whether lookups may use the part.
  LevelHealth& health() { return health_; }
  const LevelHealth& health() const { return health_; }
  // For a part that can block. One that can't costs no time when it fails.
  CircuitBreaker& breaker() { return breaker_; }
  const CircuitBreaker& breaker() const { return breaker_; }

  // Whether a fetch that begins now may ask the part. While the breaker is open, this is true for
  // one fetch a second only, which must then ask the part.
  bool Admits(TimePoint now) { return !health_.quarantined() && breaker_.Admits(now); }
  // Whether it is to get rows that were found below it.
  bool TakesRows() const { return !health_.quarantined() && !breaker_.is_open(); }
  // A fetch failed, or did not end in time.
  void NoteFailure(TimePoint now) {
    health_.Quarantine();
    if (can_block()) breaker_.NoteFailure(now);
  }

 private:
  const Opened opened_;
  LevelHealth health_;
  CircuitBreaker breaker_;
};

}  // namespace hps
