// Fetching from levels that can block, and promotion: the work of lookups that is not done on the
// caller's thread.
//
// A bounded pool of scratch buffers for level 2, and one for level 3. If calls, promotions and work
// that outlived its call hold all of them, the level counts as down for a call that finds none.
// Promotions and background fetches may hold half of them, so that inserting never stands in the
// way of answering; one more promotion is dropped and counted, one more background fetch is
// refused.
//
// Thread-safe. Must outlive the executors' last task.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "query/fetch/fetch_job.h"
#include "serving/error_counter.h"

namespace hps {

// Bounds a fetch that no caller waits for, whatever the time-outs of callers are. A job of 4,096
// rows that are all on a slow disk takes a second or two. A level that has not answered after five
// times that hangs, and must not keep the scratch and the worker for ever.
inline constexpr Duration kBackgroundFetchTimeout = std::chrono::seconds(10);

struct ReturnFetchJob {
  void operator()(FetchJob* job) const;
};
using FetchJobLease = std::unique_ptr<FetchJob, ReturnFetchJob>;

class FetchService {
 public:
  struct Options {
    Executor* fetch_executor = nullptr;
    Executor* promote_executor = nullptr;
    size_t scratch_count = 0;  // for each level; at least 2
  };

  // Errors: RESOURCE_EXHAUSTED (no memory for the scratch).
  static absl::StatusOr<std::unique_ptr<FetchService>> Create(const Options& options);
  ~FetchService();
  FetchService(const FetchService&) = delete;
  FetchService& operator=(const FetchService&) = delete;

  // A job with a scratch buffer of its own, for a part of level 2 or for kLevel3. Null when all of
  // the level are held.
  FetchJobLease Acquire(size_t level);
  // A job of the same level in the rest of the scratch buffer of `last`, which was prepared as the
  // last one there and has not been posted. Null if there is no room for so many keys.
  FetchJobLease AcquireBehind(const FetchJob& last, size_t key_count, size_t row_bytes);

  // How many scratch buffers of a level one call may hold at a time, so that others find some: a
  // share of those that are free now, at least one.
  size_t FairShare(size_t level) const;

  // Posts one task for the jobs; it counts `latch` down once for each job that is done. Several
  // jobs become one call of a tier (LossyTier::Fetch). True: when the caller has waited, it must
  // call TryCollect for each job. False: the queue is full, and nothing has happened. REQUIRES: 1
  // to kJobsPerCallMax jobs; several jobs ask one part of level 2, whose tables have a tier, and
  // have one deadline.
  bool Post(std::span<FetchJob* const> jobs, const LiveModel::Guard& guard, Latch& latch);

  // Fetches without a waiting caller, and promotes. A job for a part of L2 goes on to the next part
  // and to L3 for the keys that the part lacks. False: too many jobs run without a waiting caller,
  // or the queue is full; the job has been returned to the pool.
  bool PostInBackground(FetchJobLease job, SnapshotPin pin);

  // Promotes what an answered job holds, and returns it. Drops and counts it when there are too
  // many promotions.
  void Promote(FetchJobLease job, SnapshotPin pin);

  // As Promote, for a job that has not asked its part of L2 yet: its task fetches the keys there
  // and inserts what it gets. For a part that can't block.
  void PromoteByKeys(FetchJobLease job, SnapshotPin pin);

  // Waits until the promotions and the background fetches begun so far are done.
  // Errors: DEADLINE_EXCEEDED.
  absl::Status Drain(Duration timeout);

  Executor& fetch_executor() const { return *options_.fetch_executor; }
  const Clock& clock() const { return options_.fetch_executor->clock(); }
  uint64_t promotions_dropped() const { return promotions_dropped_.load(); }
  void CountDroppedPromotion() { promotions_dropped_.fetch_add(1, std::memory_order_relaxed); }
  ErrorCounter& l3_errors() { return l3_errors_; }

 private:
  friend class FetchJob;
  friend struct ReturnFetchJob;

  // Tracks the jobs that run without a waiting caller, in the order in which they began to. Drain
  // waits for those that have begun before its call.
  class InFlightTracker {
   public:
    explicit InFlightTracker(size_t job_count) : begun_(job_count, 0) {}
    void Begin(size_t job);
    void End(size_t job);
    absl::Status Drain(Executor& executor, Duration timeout);

   private:
    bool DoneUpTo(uint64_t number) const HPS_REQUIRES(mutex_);

    Mutex drain_mutex_;  // one Drain at a time; taken before mutex_
    Mutex mutex_;
    std::vector<uint64_t> begun_ HPS_GUARDED_BY(mutex_);  // by job; 0 = not on its own
    uint64_t last_ HPS_GUARDED_BY(mutex_) = 0;
    uint64_t awaited_ HPS_GUARDED_BY(mutex_) = 0;  // 0 = no caller waits
    Latch drained_;
  };

  struct Pool {
    std::vector<std::unique_ptr<JobScratch>> scratches;
    std::vector<std::unique_ptr<FetchJob>> jobs;
    mutable Mutex mutex;
    // With capacity for all: they never allocate.
    std::vector<JobScratch*> free_scratches HPS_GUARDED_BY(mutex);
    std::vector<FetchJob*> free_jobs HPS_GUARDED_BY(mutex);
    // Scratch buffers with a job in the background, or promoting.
    size_t detached HPS_GUARDED_BY(mutex) = 0;
  };

  explicit FetchService(const Options& options);
  // Of each pool.
  static size_t JobCount(const Options& options) { return kJobsPerCallMax * options.scratch_count; }
  static size_t PoolNumber(size_t level) { return level == kLevel3 ? 1 : 0; }
  Pool& PoolOf(const FetchJob& job) { return pools_[job.id_ / JobCount(options_)]; }
  static FetchJobLease TakeJob(Pool& pool, const JobScratchPart& part) HPS_REQUIRES(pool.mutex);
  void Return(FetchJob* job);
  // Counts the job as one that no caller waits for, until it is returned. False: there are too
  // many.
  bool Claim(FetchJob* job);
  // For jobs that a task owns.
  void ContinueDetached(FetchJob* job);  // after its fetch
  void End(FetchJob* job);               // after its insertion, or without one
  bool PostPromotion(FetchJob* job, FetchJob::Stage stage);
  void PromoteOrDrop(FetchJobLease job, SnapshotPin pin, FetchJob::Stage stage);

  const Options options_;
  std::array<Pool, 2> pools_;  // by PoolNumber
  InFlightTracker in_flight_;
  std::atomic<uint64_t> promotions_dropped_{0};
  ErrorCounter l3_errors_;
};

}  // namespace hps
