// Which way the misses of a lookup go. From the fastest way to the slowest one:
//
//   The device reads   the rows from level 2 by itself, during the probe (tier/direct_rows.h).
//   Staged fetch       The host gathers the rows from the first part of level 2 into memory from
//                      which the device takes them, on the caller's thread and idle workers
//                      (fetch/staged_fetch.h). It begins ahead, while the device probes, where the
//                      device does not read level 2 itself.
//   Level fetch        Jobs ask the parts of level 2 one after the other, then level 3
//                      (fetch/level_fetch.h).
//
// The misses that one way leaves unanswered go the next one. Lookups without a level 1 have the
// first part of level 2 write into the caller's rows (fetch/direct_fetch.h); the rest is for the
// level fetch.
//
// By which figures. A table allows the first two ways if the state of its level 2, its threshold
// and the call's queries do; these are the static functions. Whether the device reads in a lookup
// follows from the number of misses that is expected. It is not known before the probe; it is
// guessed from the lookup before. Reads by the device begin at once, but each costs the bus an
// address translation. Few misses are always faster this way, and many never are. Where the two
// take the same time depends on the machine, on the size of level 2 and on the width of rows.
// Measured on an H200 with PCIe 5, 10 % of the keys missing, rows of 512 bytes: at some 3,000
// misses if level 2 has 2 GB, at 1,200 with 8 GB, at 700 with 32 GB. No number in between is right
// for all three: 1,638 misses took an H100 55 us by the device and 71 us by the host with 2 GB, and
// a fixed limit for 32 GB would leave them to the host (docs/gpu_speed.md). So in between, the
// choice follows the times of the session's own lookups where they are known. A few lookups wait
// for their rows to be timed.
//
// Belongs to one session; for one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "query/table_lookup.h"

namespace hps {

// What a probe of level 1 has found.
struct ProbeFigures {
  size_t keys = 0;
  size_t misses = 0;
  size_t asked_of_device = 0;  // misses that the device was to answer from level 2
  size_t answered_by_device = 0;
};

class MissRoute {
 public:
  // After so many lookups without a miss, the next one is expected to have none, and does not get
  // ready for reads of level 2, which takes 0.1 us for each table.
  static constexpr uint32_t kQuietLookups = 4;
  // Expected misses: fewer than this are always read by the device, more than the other never.
  static constexpr size_t kSureMisses = 512;
  static constexpr size_t kMissesMax = 2048;
  // Between the two, as long as no times are known, the device reads fewer misses than this.
  static constexpr size_t kUntimedMax = 1024;
  // Each way is timed so often before they are compared, and then once in kTryEvery lookups, in
  // case the slower one has become the faster one.
  static constexpr uint32_t kFirstTimes = 4;
  static constexpr uint32_t kTryEvery = 256;
  // After reads that the device could not answer, the host answers the next 1, 2, 4, ... lookups,
  // at most this many.
  static constexpr uint32_t kPauseMax = 256;

  // The level 2 that the device may read for a table; null: the host must answer. The host answers
  // rows that have to be converted, keys for which two queries may ask, and a call that does not
  // wait for all rows, because the miss policy needs to know all misses first.
  static DirectReadable* ReadByDevice(const TableLookup& table) {
    const bool may_read = table.top == TableLookup::Top::kL1 && table.asks_l2[0] &&
                          table.has_one_query() && WaitsForAllRows(table) &&
                          !table.first_query->out.converts();
    return may_read ? table.table->l2_direct() : nullptr;
  }

  // Whether the first part of level 2 is to be asked on the caller's thread: it can't block.
  static bool IsAskedAtOnce(const TableLookup& table) {
    return table.asks_l2[0] && !table.table->l2()[0].can_block();
  }
  // Whether the staged fetch takes the table's misses. A table that the call names twice is left to
  // the level fetch, which de-duplicates.
  static bool IsStaged(const TableLookup& table) {
    return IsAskedAtOnce(table) && table.has_one_query();
  }
  // Whether it may begin while the device probes.
  static bool IsStagedAhead(const TableLookup& table) {
    return WaitsForAllRows(table) && IsStaged(table);
  }

  // Whether the device shall read level 2 in a lookup of so many keys. Call it once for each lookup
  // whose probe and misses follow one another without a wait for something else.
  bool LetsDeviceRead(size_t key_count) {
    timed_ = nullptr;
    if (pause_ > 0) {
      --pause_;
      return false;
    }
    if (quiet_lookups_ >= kQuietLookups) return false;
    const double misses = miss_rate_ * static_cast<double>(key_count);
    if (misses < kSureMisses) return true;
    if (misses > kMissesMax) return false;
    timed_ = misses < kUntimedMax ? &fewer_ : &more_;
    return timed_->Next() == kByDevice;
  }

  // What the lookup's probe has found.
  void NoteProbe(const ProbeFigures& found) {
    if (found.keys == 0) return;
    miss_rate_ = static_cast<double>(found.misses) / static_cast<double>(found.keys);
    quiet_lookups_ = found.misses == 0 ? std::min(quiet_lookups_ + 1, kQuietLookups) : 0;
    // The number of misses was guessed wrongly, so the time of this lookup says nothing about
    // lookups with as many misses as were expected.
    if (found.misses < kSureMisses || found.misses > kMissesMax) timed_ = nullptr;
    if (found.asked_of_device == 0) return;
    // If the device answers few misses, level 2 lacks the rows, changes are under way, or the
    // device can't read rows of this kind.
    const bool in_vain = 2 * found.answered_by_device < found.asked_of_device;
    if (in_vain) pause_ = next_pause_;
    next_pause_ = in_vain ? std::min(2 * next_pause_, kPauseMax) : 1;
  }

  // Whether the lookup should wait for its rows, for NoteTime. The session may ignore this, for
  // instance if the lookup has also waited for something else.
  bool wants_time() const { return timed_ != nullptr && timed_->wants_time(); }

  // How long the lookup took until its rows were there. REQUIRES: wants_time.
  void NoteTime(Duration time) { timed_->NoteTime(time); }

 private:
  static constexpr size_t kByDevice = 0;
  static constexpr size_t kByHost = 1;

  // Finds the faster one of two ways by their times. The first uses are of one way, the next ones
  // of the other, until each has kFirstTimes times. Later uses take the faster way. A time that is
  // wanted and not given counts for nothing: without times, all uses are of the first way.
  class FasterWay {
   public:
    // The ways are 0 and 1; `first` is tried first.
    explicit FasterWay(size_t first) : first_(first), way_(first) {}

    // The way of the next use. Call it once for each.
    size_t Next() {
      wants_time_ = true;
      way_ = means_[first_].count < kFirstTimes ? first_ : 1 - first_;
      if (means_[way_].count < kFirstTimes) return way_;
      const uint32_t turn = ++uses_ % kTryEvery;
      wants_time_ = turn <= 1;
      const size_t faster = means_[0].ns <= means_[1].ns ? 0 : 1;
      way_ = turn == 0 ? 1 - faster : faster;
      return way_;
    }

    // Whether the present use should be timed.
    bool wants_time() const { return wants_time_; }

    // How long the present use took. REQUIRES: wants_time.
    void NoteTime(Duration time) { means_[way_].Add(static_cast<double>(time.count())); }

   private:
    // A mean in which earlier times count less and less, and one that is far off counts little. The
    // first use may have had to get memory: its time is forgotten.
    struct MeanTime {
      void Add(double time) {
        if (count < 8) ++count;
        ns = count <= 2 ? time : ns + (std::min(time, 2 * ns) - ns) / count;
      }
      double ns = 0;
      uint32_t count = 0;
    };

    const size_t first_;
    size_t way_;  // of the present use
    bool wants_time_ = false;
    std::array<MeanTime, 2> means_;  // by way
    uint32_t uses_ = 0;              // since both are known
  };

  static bool WaitsForAllRows(const TableLookup& table) { return table.hit_rate_threshold >= 1.0; }

  double miss_rate_ = 0;
  uint32_t quiet_lookups_ = 0;  // without a miss, up to kQuietLookups
  uint32_t pause_ = 0;
  uint32_t next_pause_ = 1;
  FasterWay fewer_{kByDevice};  // of lookups that expect fewer than kUntimedMax misses
  FasterWay more_{kByHost};
  FasterWay* timed_ = nullptr;  // of these, the one that chose for the present lookup
};

}  // namespace hps
