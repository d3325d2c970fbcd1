// Fetches from one level all keys that a call has not found yet, in parallel jobs, until the
// deadline.
//
// A call may miss more rows than the pool has scratch, so its jobs are sent in batches: build,
// submit, wait, collect. Each job is one task, except where level 2 answers several tables with one
// call: then the jobs of that call are one task. The jobs of the last batch are kept until
// PromoteHeld, so that promotion begins after the reply. Belongs to one session; for one thread;
// allocates nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "base/executor.h"
#include "query/fetch/cancel_point.h"
#include "query/fetch/fetch_service.h"
#include "query/table_lookup.h"

namespace hps {

class LevelFetch {
 public:
  explicit LevelFetch(FetchService& service) : service_(service) {}
  LevelFetch(const LevelFetch&) = delete;
  LevelFetch& operator=(const LevelFetch&) = delete;

  // Called after each batch that answered some keys and left others to fetch.
  using AfterBatch = absl::FunctionRef<void()>;

  // Ends the waits of the call that begins now before its deadlines; may be null.
  void set_cancel(CancelPoint* cancel) { cancel_ = cancel; }
  bool is_cancelled() const { return cancel_ != nullptr && cancel_->is_cancelled(); }

  // Answers the pending keys that the level has by `deadline`. The others stay pending; if no
  // scratch is left, all do. A level that can't block (some L2) is asked on this thread, whatever
  // the deadline. An L2 that times out is bypassed for a while (base/circuit_breaker.h), and
  // while a change is open (tier/fence.h).
  void Fetch(std::span<TableLookup> tables, FetchJob::Level level, const LiveModel::Guard& guard,
             Deadline deadline, AfterBatch after_batch = Nothing);

  // Starts to fetch all pending keys of `table` into the levels above, in the background, and
  // answers them with default rows: kDefaultPending if a level takes them and a job is free, else
  // kDefaultDegraded.
  void FetchInBackground(TableLookup& table, FetchJob::Level level, const LiveModel::Guard& guard);

  // Passes the kept jobs on to promotion. Must be called before the guard ends.
  void PromoteHeld(const LiveModel::Guard& guard);

 private:
  static constexpr size_t kBatchJobsMax = kJobsPerCallMax;

  static void Nothing() {}

  struct FetchTask {
    FetchJobLease job;
    TableLookup* table = nullptr;
    size_t first = 0;  // the job has the table's pending keys first .. first + key_count
    size_t key_count = 0;
    bool posted = false;
    bool answered = false;
  };

  // Where the next batch begins.
  struct Progress {
    size_t table = 0;
    size_t open = 0;
  };

  // Leaves the table's L2 out if its circuit breaker is open.
  void BypassFailing(TableLookup& table);
  static bool Wanted(const TableLookup& table, FetchJob::Level level);
  static bool CanBlock(const TableLookup& table, FetchJob::Level level);
  // What answers the table's jobs together with those of others; null: each job is asked alone.
  static LossyTier* TierOf(const TableLookup& table, FetchJob::Level level);
  void BuildBatch(std::span<TableLookup> tables, FetchJob::Level level, Deadline deadline,
                  Progress* progress);
  bool AddTask(TableLookup& table, FetchJob::Level level, size_t first, Deadline deadline);
  FetchJobLease AcquireJob(FetchJob::Level level, size_t key_count, size_t row_bytes);
  void SubmitBatch(FetchJob::Level level, const LiveModel::Guard& guard, Deadline deadline);
  // The tasks from `first` on that one call answers.
  std::span<FetchTask> TasksOfCall(size_t first, FetchJob::Level level);
  void PostCall(std::span<FetchTask> tasks, const LiveModel::Guard& guard);
  void CollectBatch(FetchJob::Level level);
  void CopyOut(FetchTask& task, FetchJob::Level level);
  static void LeaveRestPending(std::span<TableLookup> tables, FetchJob::Level level,
                               Progress progress);

  bool IsTooLate(Deadline deadline) const;

  FetchService& service_;
  CancelPoint* cancel_ = nullptr;
  Latch latch_;
  std::array<FetchTask, kBatchJobsMax> tasks_;
  size_t task_count_ = 0;
  size_t scratches_left_ = 0;  // that the batch may still take
  size_t job_keys_max_ = 0;
};

}  // namespace hps
