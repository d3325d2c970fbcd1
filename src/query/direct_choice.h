// Whether a lookup has the device read the rows that it misses from level 2 by itself
// (tier/direct_rows.h), or has the host gather and copy them.
//
// Reads by the device begin at once, but each costs the bus an address translation. Measured on an
// H200 with PCIe 5, 10 % of the keys missing, rows of 512 bytes: the two take the same time at some
// 3,000 misses if level 2 has 2 GB, at 1,200 with 8 GB and at 700 with 32 GB. The number of misses
// is not known before the probe; it is guessed from the lookup before.
//
// For one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hps {

class DirectChoice {
 public:
  static constexpr size_t kMissesMax = 1024;
  // Lookups that leave it to the host after reads in vain: 1, 2, 4 and so on up to this.
  static constexpr uint32_t kPauseMax = 256;

  // For a lookup of so many keys. Call it once for each.
  bool WantsDirectReads(size_t key_count) {
    if (pause_ > 0) {
      --pause_;
      return false;
    }
    return miss_rate_ * static_cast<double>(key_count) <= static_cast<double>(kMissesMax);
  }

  // What the lookup missed in level 1.
  void NoteMisses(size_t key_count, size_t miss_count) {
    if (key_count > 0)
      miss_rate_ = static_cast<double>(miss_count) / static_cast<double>(key_count);
  }

  // Of the misses that the device was to answer, how many it has answered. Few are in vain if level
  // 2 lacks rows, if changes are under way, or if the device can't read rows of this kind.
  void NoteReads(size_t asked, size_t answered) {
    if (asked == 0) return;
    if (2 * answered >= asked) {
      next_pause_ = 1;
      return;
    }
    pause_ = next_pause_;
    next_pause_ = std::min(2 * next_pause_, kPauseMax);
  }

 private:
  double miss_rate_ = 0;
  uint32_t pause_ = 0;
  uint32_t next_pause_ = 1;
};

}  // namespace hps
