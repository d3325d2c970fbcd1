// Whether level 1 still takes rows that may not push others out. A key has few places there, so the
// first one that finds none says little: it counts how many find one.
//
// Lookups that promote rows meanwhile count only where those got free places, too: a row that
// pushed another one out says nothing about room. For one thread.
#pragma once

#include <cstdint>

#include "hps/statistics.h"

namespace hps {

class RoomInLevel1 {
 public:
  // The statistics of the table before the first row is sent.
  explicit RoomInLevel1(const LevelStatistics& statistics) : before_(statistics) {}

  // `now`: its statistics after some rows. Judges by the rows since it was last sure.
  bool IsLeft(const LevelStatistics& now) {
    const uint64_t inserted = now.insertions - before_.insertions;
    const uint64_t evicted = now.evictions - before_.evictions;
    // The counters are not read at the same instant.
    const uint64_t found_room = inserted > evicted ? inserted - evicted : 0;
    const uint64_t sent = found_room + now.dropped - before_.dropped;
    if (sent < kRowsPerLook) return true;
    before_ = now;
    return found_room * kWorthwhileShare >= sent;
  }

 private:
  static constexpr uint64_t kRowsPerLook = 16'384;
  static constexpr uint64_t kWorthwhileShare = 16;

  LevelStatistics before_;
};

}  // namespace hps
