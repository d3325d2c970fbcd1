// Whether lookups may use one table's level: a part of level 2, or level 1 on one device.
//
// A level that failed or timed out may lack a change. A lookup that bypassed it and saw the new row
// in L3 must not see the old row in the level later. The level is therefore in quarantine until
// every change that was open or pending for it at the failure has been applied to it. Lookups
// bypass a level in quarantine.
//
// Thread-safe.
#pragma once

#include <atomic>

#include "tier/fence.h"

namespace hps {

class LevelHealth {
 public:
  // When a change counts as applied to the level: for L2 when it is published, for L1 only when it
  // has been refreshed.
  enum class Applied { kWhenPublished, kWhenNoted };

  explicit LevelHealth(const ApplyEpochs& epochs, Applied applied = Applied::kWhenPublished)
      : epochs_(epochs), lags_(applied == Applied::kWhenNoted) {}

  // Begins a quarantine because the level failed now. It ends by itself, see above.
  void Quarantine() {
    const ApplyEpoch open = epochs_.begun();
    ApplyEpoch until = until_.load(std::memory_order_seq_cst);
    while (until < open && !until_.compare_exchange_weak(until, open)) {
    }
  }
  // Begins a quarantine because the level lacks a change; it lasts until Clear.
  void QuarantineUntilCleared() { until_.store(UINT64_MAX, std::memory_order_seq_cst); }
  // Ends the quarantine: the level was emptied and is therefore up to date.
  void Clear() { until_.store(0, std::memory_order_seq_cst); }

  // A level of kind kWhenNoted has all changes up to `epoch`: it was refreshed, or began empty.
  void NoteApplied(ApplyEpoch epoch) { noted_.store(epoch, std::memory_order_seq_cst); }

  bool quarantined() const {
    const ApplyEpoch until = until_.load(std::memory_order_seq_cst);
    if (until == 0) return false;
    return (lags_ ? noted_.load(std::memory_order_seq_cst) : epochs_.published()) < until;
  }
  // It lacks a change, so that only Clear ends the quarantine.
  bool needs_clearing() const { return until_.load(std::memory_order_seq_cst) == UINT64_MAX; }

 private:
  const ApplyEpochs& epochs_;
  const bool lags_;
  std::atomic<ApplyEpoch> until_{0};
  std::atomic<ApplyEpoch> noted_{0};
};

}  // namespace hps
