// Whether a lookup has the device read the rows that it misses from level 2 by itself
// (tier/direct_rows.h), or has the host gather and copy them.
//
// Reads by the device begin at once, but each costs the bus an address translation. Few misses are
// always faster this way, and many never are. Where the two take the same time depends on the
// machine, on the size of level 2 and on the width of rows. Measured on an H200 with PCIe 5, 10 %
// of the keys missing, rows of 512 bytes: at some 3,000 misses if level 2 has 2 GB, at 1,200 with
// 8 GB, at 700 with 32 GB. So in between, the choice follows the times of the session's own lookups
// where they are known. A few lookups wait for their rows to be timed.
//
// The number of misses is not known before the probe; it is guessed from the lookup before.
//
// For one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace hps {

class DirectChoice {
 public:
  // After so many lookups without a miss, the next one is expected to have none, and does not get
  // ready for reads of level 2, which takes 0.1 us for each table.
  static constexpr uint32_t kQuietLookups = 4;
  // Expected misses: fewer than this are always read by the device, more than the other never.
  static constexpr size_t kSureMisses = 512;
  static constexpr size_t kMissesMax = 2048;
  // What is done in between as long as no times are known: the device reads fewer than this.
  static constexpr size_t kUntimedMax = 1024;
  // Each way is timed so often before they are compared, and then once in kTryEvery lookups, in
  // case the slower one has become the faster one.
  static constexpr uint32_t kFirstTimes = 4;
  static constexpr uint32_t kTryEvery = 256;
  // Lookups that leave it to the host after reads in vain: 1, 2, 4 and so on up to this.
  static constexpr uint32_t kPauseMax = 256;

  // For a lookup of so many keys. Call it once for each.
  bool WantsDirectReads(size_t key_count) {
    timed_ = nullptr;
    if (pause_ > 0) {
      --pause_;
      return false;
    }
    if (quiet_lookups_ >= kQuietLookups) return false;
    const double misses = miss_rate_ * static_cast<double>(key_count);
    if (misses < kSureMisses) return true;
    if (misses > kMissesMax) return false;
    return ChooseByTimes(misses < kUntimedMax ? fewer_ : more_);
  }

  // What the lookup missed in level 1.
  void NoteMisses(size_t key_count, size_t miss_count) {
    if (key_count == 0) return;
    miss_rate_ = static_cast<double>(miss_count) / static_cast<double>(key_count);
    quiet_lookups_ = miss_count == 0 ? std::min(quiet_lookups_ + 1, kQuietLookups) : 0;
    // The number of misses was guessed wrongly, so the time of this lookup says nothing about
    // lookups with as many misses as were expected.
    if (miss_count < kSureMisses || miss_count > kMissesMax) timed_ = nullptr;
  }

  // Whether the lookup should wait for its rows, for NoteTime. The session may ignore this, for
  // instance if the lookup has also waited for something else.
  bool wants_time() const { return timed_ != nullptr; }

  // How long the lookup took until its rows were there. REQUIRES: wants_time.
  void NoteTime(Duration time) {
    (takes_device_ ? timed_->device : timed_->host).Add(static_cast<double>(time.count()));
  }

  // How many of the misses that the device was to answer it has answered. If few, the reads were in
  // vain: level 2 lacks rows, changes are under way, or the device can't read rows of this kind.
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
  // A mean in which earlier times count less and less, and one that is far off counts little. The
  // first lookup may have had to get memory: its time is forgotten.
  struct MeanTime {
    void Add(double time) {
      if (count < 8) ++count;
      ns = count <= 2 ? time : ns + (std::min(time, 2 * ns) - ns) / count;
    }
    double ns = 0;
    uint32_t count = 0;
  };
  struct Times {
    bool device_at_first = true;
    MeanTime device{};
    MeanTime host{};
    uint32_t lookups = 0;  // since both are known
  };

  bool ChooseByTimes(Times& times) {
    const MeanTime& first = times.device_at_first ? times.device : times.host;
    const MeanTime& second = times.device_at_first ? times.host : times.device;
    takes_device_ = times.device_at_first;
    timed_ = &times;
    if (first.count < kFirstTimes) return takes_device_;
    takes_device_ = !takes_device_;
    if (second.count < kFirstTimes) return takes_device_;
    const uint32_t turn = ++times.lookups % kTryEvery;
    if (turn > 1) timed_ = nullptr;
    takes_device_ = (times.device.ns <= times.host.ns) == (turn > 0);
    return takes_device_;
  }

  double miss_rate_ = 0;
  uint32_t quiet_lookups_ = 0;  // without a miss, up to kQuietLookups
  uint32_t pause_ = 0;
  uint32_t next_pause_ = 1;
  Times fewer_{.device_at_first = true};  // of lookups that expect fewer than kUntimedMax misses
  Times more_{.device_at_first = false};
  Times* timed_ = nullptr;     // of these, the one that wants the present lookup's time
  bool takes_device_ = false;  // the present lookup
};

}  // namespace hps
