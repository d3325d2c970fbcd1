// Fetches from a part of level 2, or from level 3, all keys that a call has not found yet, in
// parallel jobs, until the deadline.
//
// A call may miss more rows than the pool has scratch, so its jobs are sent in batches: build,
// submit, wait, collect. Each job is one task, except where a tier answers several tables with one
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
#include "query/call_deadlines.h"
#include "query/fetch/fetch_service.h"
#include "query/table_lookup.h"

namespace hps {

class LevelFetch {
 public:
  LevelFetch(FetchService& service, const CallDeadlines& deadlines)
      : service_(service), deadlines_(deadlines) {}

  // Called after each batch that answered some keys and left others to fetch.
  using AfterBatch = absl::FunctionRef<void()>;

  // Asks the parts of level 2 that a table's lookup may ask (TableLookup::asks_l2), one after the
  // other, for its pending keys. Answers those that a part has within its time. The others stay
  // pending; if no scratch is left, all do. A part that can't block is asked on this thread,
  // whatever the deadline. One that times out is bypassed for a while (base/circuit_breaker.h), and
  // while a change is open (tier/fence.h). False: there was no part to ask.
  bool FetchFromL2(std::span<TableLookup> tables, const LiveModel::Guard& guard);
  // Likewise from level 3, until the call's deadline.
  void FetchFromL3(std::span<TableLookup> tables, const LiveModel::Guard& guard,
                   AfterBatch after_batch);

  // Starts to fetch all pending keys of `table` into the levels above, in the background, and
  // answers them with default rows: kDefaultPending if a level takes them and a job is free, else
  // kDefaultDegraded. Begins with `level`, or with the next one that may be asked.
  void FetchInBackground(TableLookup& table, size_t level, const LiveModel::Guard& guard);

  // Passes the kept jobs on to promotion. Must be called before the guard ends.
  void PromoteHeld(const LiveModel::Guard& guard);

 private:
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

  // The next part of L2 that is to be asked for the table's pending keys, or kNoLevel. Leaves out
  // those whose circuit breaker is open.
  size_t TakeNextPart(TableLookup& table);
  static bool CanBlock(const TableLookup& table);
  // What answers the table's jobs together with those of others; null: each job is asked alone.
  static LossyTier* TierOf(const TableLookup& table);
  void Fetch(std::span<TableLookup> tables, const LiveModel::Guard& guard, Deadline deadline,
             AfterBatch after_batch);
  void BuildBatch(std::span<TableLookup> tables, Deadline deadline, Progress* progress);
  bool AddTask(TableLookup& table, size_t first, Deadline deadline);
  FetchJobLease AcquireJob(const TableLookup& table, size_t key_count);
  void SubmitBatch(const LiveModel::Guard& guard, Deadline deadline);
  // The tasks from `first` on that one call answers.
  std::span<FetchTask> TasksOfCall(size_t first);
  void PostCall(std::span<FetchTask> tasks, const LiveModel::Guard& guard);
  void CollectBatch();
  void CopyOut(FetchTask& task);
  static void LeaveRestPending(std::span<TableLookup> tables, Progress progress);

  FetchService& service_;
  const CallDeadlines& deadlines_;
  Latch latch_;
  std::array<FetchTask, kJobsPerCallMax> tasks_;
  size_t task_count_ = 0;
  size_t scratches_left_ = 0;  // that the batch may still take
  size_t job_keys_max_ = 0;
};

}  // namespace hps
