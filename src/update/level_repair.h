// Keeps levels 1 and 2 of one table usable while one of them fails. A level that lacks a change
// goes into quarantine: lookups bypass it until it has been cleared.
//
// Keys whose watermarks a level could not raise are noted. They are raised before the level is
// cleared, because until then promotions could bring old rows of them. A device cache that does not
// answer in time is left alone for a while, so that it costs the other levels nothing. Each attempt
// that it does not answer either doubles that time.
//
// Each level has a deadline of its own, so that a level that hangs leaves the others their time.
//
// For the holder of the table's WriteLease. Describes the levels of one LiveTable: for another one,
// begin anew with Reset.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/limits.h"
#include "serving/live_table.h"
#include "update/noted_keys.h"

namespace hps {

class LevelRepair {
 public:
  explicit LevelRepair(std::string table) : table_(std::move(table)) {}
  LevelRepair(const LevelRepair&) = delete;
  LevelRepair& operator=(const LevelRepair&) = delete;

  // The longest wait for one level: for its promotions that began before a change, and for its
  // device.
  static Deadline Soon() { return DeadlineAfter(RealClock(), std::chrono::seconds(1)); }

  // Whether the cache has the table, and takes changes of it.
  static bool TakesChanges(const LiveTable& live, size_t cache) {
    return live.l1(cache) != nullptr && !live.l1_health(cache).needs_clearing();
  }

  void Reset();

  // Raises the watermarks of keys in levels 1 and 2. A level where that fails is quarantined. One
  // that already waits to be cleared is not asked: it gets these watermarks with Clear.
  void Raise(LiveTable& live, std::span<const Key> keys, ApplyEpoch epoch);

  // The level lacks a change. REQUIRES: the cache has the table.
  void QuarantineL1(LiveTable& live, size_t cache);
  void QuarantineL2(L2Part& part) { Quarantine(part.health(), part.name()); }

  // Clears the levels that wait for it and answer. REQUIRES: no epoch is open.
  void Clear(LiveTable& live);

  // Whether a level waits to be cleared. A level whose noted keys have overflowed does not: it is
  // bypassed until the table's model is loaded again.
  bool CanClear(const LiveTable& live) const;

 private:
  struct Cache {
    NotedKeys unraised{};
    Duration rest{};  // the last time that it was left alone; 0: it has answered
    TimePoint rests_until{};
  };

  void Quarantine(LevelHealth& health, std::string_view level);
  void ClearL1(LiveTable& live, size_t number);
  void ClearL2(LiveTable& live, size_t number);

  const std::string table_;
  std::array<Cache, kCachesMax> l1_{};
  std::array<NotedKeys, kL2PartsMax> l2_{};  // whose watermarks the part lacks
};

}  // namespace hps
