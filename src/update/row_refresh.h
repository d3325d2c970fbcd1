// Brings rows of level 1 up to date: reads them from levels 2 and 3, straight into the staging of a
// device. Three threads prepare one step of an update each, with helpers: while one step is being
// transferred, others are being fetched.
//
// For the holder of the table's WriteLease, and for one Run. A key that occurs twice is read twice:
// no change comes between, so both rows are the same.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/fork_join_team.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "serving/live_table.h"

namespace hps {

class RowRefresh final : public ForkJoinTeam::Work {
 public:
  struct Options {
    LiveTable* live = nullptr;
    std::span<const Key> keys{};
    size_t cache = kCachesMax;  // only this one; kCachesMax = all
    Deadline deadline = kNoDeadline;
    std::function<void()> beside{};  // is also run once, by any thread
  };
  explicit RowRefresh(const Options& options);

  // Updates the keys in level 1, and erases those that are absent, until all are done or `until`
  // has passed (but always some). Returns how many are done, counted from the first. The writes
  // have not been flushed. `teams` may be null: the caller works alone. Errors: those of
  // DurableTable::Fetch; keys may or may not have been done.
  absl::StatusOr<size_t> Run(ForkJoinPool* teams, TimePoint until);

  // After Run. A cache that failed may lack rows.
  bool failed(size_t cache) const { return failed_[cache].load(std::memory_order_relaxed); }
  uint64_t rows_refreshed() const { return rows_refreshed_.load(std::memory_order_relaxed); }

 private:
  class StepFetch;  // the rows of one step, fetched by a thread and its helpers
  struct Helpers {
    ForkJoinTeam* team = nullptr;  // null: none
    size_t count = 0;
  };
  // Pieces of the team in Run: the drivers, then `beside`.
  static constexpr size_t kDrivers = 3;

  void RunPiece(size_t piece) override;
  // Does steps until none is left.
  void Drive(const Helpers& helpers);
  void RunStep(size_t step, const Helpers& helpers);
  // The table in a cache that takes part; null if there is none or it has failed.
  DeviceCacheTable* Target(size_t cache) const;
  // Fetches into the staging of `l1`, which is the table in `cache`, and updates the caches after
  // it with the same rows. False if the rows could not be fetched, because the cache gave no room.
  bool UpdateFirst(size_t cache, DeviceCacheTable& l1, std::span<const Key> keys,
                   const Helpers& helpers);
  void UpdateOthers(size_t first_cache, const RowBatch& batch);
  void EraseAbsent();
  void Note(size_t cache, const absl::Status& status, size_t row_count);
  void Stop(const absl::Status& status);

  const Options options_;
  const size_t step_keys_;
  const size_t step_count_;
  ForkJoinPool* teams_ = nullptr;  // of Run
  TimePoint until_{};
  std::atomic<size_t> next_step_{0};
  std::array<std::atomic<bool>, kCachesMax> failed_{};
  std::atomic<uint64_t> rows_refreshed_{0};
  std::atomic<bool> stopped_{false};  // fetching failed
  Mutex mutex_;
  absl::Status status_ HPS_GUARDED_BY(mutex_);
  std::vector<Key> absent_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
