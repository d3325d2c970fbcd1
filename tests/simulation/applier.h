// The write path of a simulated node for one table, step by step as ARCHITECTURE.md describes it:
// open an epoch, raise the watermarks of L1 and L2, write L3, then L2, publish, and now and then
// refresh L1. Every step is a task of its own, so that lookups and promotions run between any two.
//
// For one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "base/executor.h"
#include "tests/simulation/simulated_table.h"

namespace hps {

class SimulatedApplier final : public Task {
 public:
  // Posts itself; ends after `change_count` changes, a last refresh and the clearing of the levels
  // that missed a change.
  SimulatedApplier(SimulatedTable& table, size_t cache_count, Executor& executor, uint64_t seed,
                   size_t change_count);

  void Run() override;
  bool done() const { return step_ == Step::kDone; }
  // Between two changes, and nothing under way.
  bool idle() const { return !running_ && (step_ == Step::kBegin || step_ == Step::kDone); }
  // The table has another incarnation now, with empty levels above L3. REQUIRES: idle().
  void OnSwitch();

  // What was taken from the stream since the import, in order; a change's place is its offset.
  struct Change {
    std::vector<Key> upserted;
    std::vector<Key> deleted;
    Version version = 0;
  };
  // The process ends, wherever it is: what is under way counts as taken from the stream. Returns
  // the stream, which whoever starts anew has to write to L3 from its position on.
  // REQUIRES: not called from within a step.
  const std::vector<Change>& Crash();
  bool in_step() const { return running_; }
  // The process has started anew: L3 has all of the stream, and the levels above it are empty.
  void OnRestart();
  uint64_t clear_count() const { return clear_count_; }
  uint64_t l1_clear_count() const { return l1_clear_count_; }

 private:
  enum class Step {
    kBegin,
    kRaiseL1,
    kRaiseL2,
    kWriteL3,
    kWriteL2,
    kPublish,
    kClearL2,
    kClearL1,
    kRefresh,
    kDone
  };

  Step NextStep();  // does the present one
  void DrawChange();
  void AppendChange();
  void ForgetLevels();
  bool WriteL3();
  void WriteL2(size_t part);
  bool l2_missed() const;
  bool ClearL2();
  bool RefreshL1();
  bool RefreshOne(DeviceCacheTable& l1, const FetchBatch& fetched);
  void RaiseL1();
  void NoteMissedByL1(size_t cache);
  bool ClearL1();
  bool l1_missed() const;
  Step AfterPublish();

  SimulatedTable& table_;
  const size_t cache_count_;
  Executor& executor_;
  std::mt19937_64 random_;
  size_t changes_left_;
  Step step_ = Step::kBegin;
  bool running_ = false;
  Version version_;
  ApplyEpoch epoch_ = 0;
  std::vector<Key> changed_;
  std::vector<Key> deleted_;
  std::optional<SimulatedBatch> upserts_;
  std::vector<Change> stream_;
  bool appended_ = false;     // to the history and the stream
  size_t parts_written_ = 0;  // of L2, by the present change
  // By part of L2: it missed a change, and is passed by until it is cleared.
  std::array<bool, kL2PartsMax> missed_by_l2_{};
  std::set<Key> to_refresh_;  // changed since L1 was last brought up to date
  uint64_t clear_count_ = 0;
  // By device: the table there missed a change or the raise of its watermarks; it is passed by
  // until it is cleared, after what is in `unraised_` has been raised.
  std::vector<bool> missed_by_l1_;
  std::set<Key> unraised_;
  uint64_t l1_clear_count_ = 0;
};

}  // namespace hps
