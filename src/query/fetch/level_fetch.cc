#include "query/fetch/level_fetch.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"

namespace hps {
namespace {

// A call with many misses is cut into about as many jobs as a machine has workers to spare, but
// not into pieces smaller than RocksDB takes at a time.
constexpr size_t kJobsWanted = 8;

FetchJob::Spec OrderFor(const TableLookup& table, FetchJob::Level level, Deadline deadline) {
  return {.table = table.table,
          .counters = table.counters,
          .level = level,
          .cache = table.cache,
          .epoch = table.epoch,
          .l2_bypassed = table.l2_bypassed,
          .deadline = deadline};
}

void FillKeys(const MissList& misses, size_t first, FetchJob& job) {
  const std::span<Key> keys = job.keys();
  const std::span<uint8_t> times_asked = job.times_asked();
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t index = misses.pending()[first + i];
    keys[i] = misses.key(index);
    times_asked[i] = static_cast<uint8_t>(std::min<size_t>(misses.times_asked(index), UINT8_MAX));
  }
}

}  // namespace

bool LevelFetch::Wanted(const TableLookup& table, FetchJob::Level level) {
  return level == FetchJob::Level::kL3 || table.l2_usable;
}

bool LevelFetch::CanBlock(const TableLookup& table, FetchJob::Level level) {
  return level == FetchJob::Level::kL3 || table.table->l2()->can_block();
}

LossyTier* LevelFetch::TierOf(const TableLookup& table, FetchJob::Level level) {
  if (level == FetchJob::Level::kL3 || !table.table->l2()->can_block()) return nullptr;
  return table.table->l2_tier();
}

void LevelFetch::Fetch(std::span<TableLookup> tables, FetchJob::Level level,
                       const LiveModel::Guard& guard, Deadline deadline, AfterBatch after_batch) {
  size_t open_count = 0;
  for (TableLookup& table : tables) {
    if (level == FetchJob::Level::kL2) BypassFailing(table);
    if (!Wanted(table, level)) continue;
    open_count += table.misses.pending().size();
    if (level == FetchJob::Level::kL3) table.misses.SortPendingByKey();
    table.misses.BeginFilter();
  }
  job_keys_max_ = std::max(kFetchPieceKeysMax, open_count / kJobsWanted);
  Progress progress;
  while (open_count > 0) {
    PromoteHeld(guard);
    BuildBatch(tables, level, deadline, &progress);
    if (task_count_ == 0) break;
    SubmitBatch(level, guard, deadline);
    CollectBatch(level);
    after_batch();
  }
  LeaveRestPending(tables, level, progress);
}

void LevelFetch::BypassFailing(TableLookup& table) {
  if (!table.l2_usable || !table.table->l2()->can_block() || table.misses.pending().empty()) return;
  if (table.table->l2_breaker().Admits(service_.clock().Now())) return;
  table.l2_usable = false;
  table.l2_bypassed = true;
}

void LevelFetch::BuildBatch(std::span<TableLookup> tables, FetchJob::Level level, Deadline deadline,
                            Progress* progress) {
  scratches_left_ = service_.FairShare(level);
  const bool too_late = IsTooLate(deadline);
  for (; progress->table < tables.size(); ++progress->table, progress->open = 0) {
    TableLookup& table = tables[progress->table];
    if (!Wanted(table, level)) continue;
    const size_t open_count = table.misses.pending().size();
    if (too_late && CanBlock(table, level)) {
      for (; progress->open < open_count; ++progress->open)
        table.misses.Keep(table.misses.pending()[progress->open]);
      continue;
    }
    while (progress->open < open_count) {
      if (task_count_ == kBatchJobsMax) return;
      if (!AddTask(table, level, progress->open, deadline)) return;
      progress->open += tasks_[task_count_ - 1].key_count;
    }
  }
}

bool LevelFetch::AddTask(TableLookup& table, FetchJob::Level level, size_t first,
                         Deadline deadline) {
  // A tier that answers jobs together answers a large job as fast as several small ones.
  const size_t keys_max = TierOf(table, level) == nullptr ? job_keys_max_ : kFetchTaskKeysMax;
  const size_t row_bytes = table.table->row_bytes();
  const size_t key_count =
      std::min({table.misses.pending().size() - first, keys_max, FetchJob::KeysMax(row_bytes)});
  FetchJobLease job = AcquireJob(level, key_count, row_bytes);
  if (job == nullptr) return false;
  job->Prepare(OrderFor(table, level, deadline), key_count);
  FillKeys(table.misses, first, *job);
  tasks_[task_count_++] = {
      .job = std::move(job), .table = &table, .first = first, .key_count = key_count};
  return true;
}

// In the scratch buffer of the job before, if there is room.
FetchJobLease LevelFetch::AcquireJob(FetchJob::Level level, size_t key_count, size_t row_bytes) {
  if (task_count_ > 0) {
    FetchJobLease job = service_.AcquireBehind(*tasks_[task_count_ - 1].job, key_count, row_bytes);
    if (job != nullptr) return job;
  }
  if (scratches_left_ == 0) return nullptr;
  --scratches_left_;
  return service_.Acquire(level);
}

void LevelFetch::SubmitBatch(FetchJob::Level level, const LiveModel::Guard& guard,
                             Deadline deadline) {
  const std::span<FetchTask> batch(tasks_.data(), task_count_);
  const auto blocking = [&](const FetchTask& task) { return CanBlock(*task.table, level); };
  latch_.Reset(static_cast<size_t>(std::count_if(batch.begin(), batch.end(), blocking)));
  for (size_t first = 0; first < task_count_;) {
    const std::span<FetchTask> call = TasksOfCall(first, level);
    if (blocking(call.front())) PostCall(call, guard);
    first += call.size();
  }
  for (FetchTask& task : batch) {
    if (blocking(task)) continue;
    task.job->Fetch();
    task.answered = true;
  }
  CancelPoint::Await(cancel_, service_.fetch_executor(), latch_, deadline);
}

// A call has no more keys than a job may have, so that a large lookup is answered by several
// workers and no node is kept busy for long.
std::span<LevelFetch::FetchTask> LevelFetch::TasksOfCall(size_t first, FetchJob::Level level) {
  const LossyTier* const tier = TierOf(*tasks_[first].table, level);
  size_t end = first + 1;
  size_t key_count = tasks_[first].key_count;
  while (tier != nullptr && end < task_count_ && TierOf(*tasks_[end].table, level) == tier &&
         key_count + tasks_[end].key_count <= kFetchTaskKeysMax) {
    key_count += tasks_[end++].key_count;
  }
  return std::span(tasks_).subspan(first, end - first);
}

void LevelFetch::PostCall(std::span<FetchTask> tasks, const LiveModel::Guard& guard) {
  std::array<FetchJob*, kBatchJobsMax> jobs{};
  for (size_t i = 0; i < tasks.size(); ++i) jobs[i] = tasks[i].job.get();
  const bool posted = service_.Post(std::span(jobs).first(tasks.size()), guard, latch_);
  for (FetchTask& task : tasks) {
    task.posted = posted;
    if (!posted) latch_.CountDown();  // the queue is full: as if the level were down
  }
}

bool LevelFetch::IsTooLate(Deadline deadline) const {
  return service_.clock().Now() >= deadline || is_cancelled();
}

void LevelFetch::CollectBatch(FetchJob::Level level) {
  for (FetchTask& task : std::span(tasks_.data(), task_count_)) {
    if (task.posted) task.answered = task.job->TryCollect();
    if (task.posted && !task.answered) {
      latch_.CountDown();  // the task, which keeps the job, will not
      // A call that was given up says nothing about the level.
      if (level == FetchJob::Level::kL2 && !is_cancelled()) {
        task.table->table->l2_health().Quarantine();
        task.table->table->l2_breaker().NoteFailure(service_.clock().Now());
        task.table->counters->l2_errors().Add(absl::StatusCode::kDeadlineExceeded);
      }
    } else if (task.posted && level == FetchJob::Level::kL2 && !task.job->failed()) {
      task.table->table->l2_breaker().NoteAnswer();
    }
    CopyOut(task, level);
    if (task.posted && !task.answered) static_cast<void>(task.job.release());
    if (!task.answered) task.job.reset();
  }
}

void LevelFetch::CopyOut(FetchTask& task, FetchJob::Level level) {
  TableLookup& table = *task.table;
  for (size_t i = 0; i < task.key_count; ++i) {
    const uint32_t index = table.misses.pending()[task.first + i];
    const FetchOutcome outcome = task.answered ? task.job->outcomes()[i] : FetchOutcome::kMiss;
    if (outcome == FetchOutcome::kHit) {
      const bool of_l2 = task.job->level(i) == FetchJob::Level::kL2;
      table.Answer(index, of_l2 ? KeyStatus::kHitL2 : KeyStatus::kHitL3, task.job->row(i));
    } else if (outcome == FetchOutcome::kAbsent) {
      table.Answer(index, KeyStatus::kAbsent, nullptr);
    } else if (outcome == FetchOutcome::kLost && level == FetchJob::Level::kL3) {
      table.Answer(index, KeyStatus::kDefaultDegraded, nullptr);
    } else {
      table.misses.Keep(index);
    }
  }
}

void LevelFetch::LeaveRestPending(std::span<TableLookup> tables, FetchJob::Level level,
                                  Progress progress) {
  for (size_t i = 0; i < tables.size(); ++i) {
    if (!Wanted(tables[i], level)) continue;
    MissList& misses = tables[i].misses;
    if (i >= progress.table) {
      const size_t first = i == progress.table ? progress.open : 0;
      for (size_t j = first; j < misses.pending().size(); ++j) misses.Keep(misses.pending()[j]);
    }
    misses.EndFilter();
  }
}

void LevelFetch::FetchInBackground(TableLookup& table, FetchJob::Level level,
                                   const LiveModel::Guard& guard) {
  if (level == FetchJob::Level::kL2) {
    BypassFailing(table);
    if (table.l2_bypassed) level = FetchJob::Level::kL3;
  }
  if (level == FetchJob::Level::kL3) table.misses.SortPendingByKey();
  const std::span<const uint32_t> open = table.misses.pending();
  const FetchJob::Spec order = OrderFor(table, level, kNoDeadline);
  const bool has_taker = FetchJob::HasTaker(order);
  for (size_t first = 0; first < open.size();) {
    const size_t key_count =
        std::min(open.size() - first, FetchJob::KeysMax(table.table->row_bytes()));
    bool started = false;
    if (FetchJobLease job = has_taker ? service_.Acquire(level) : nullptr) {
      job->Prepare(order, key_count);
      FillKeys(table.misses, first, *job);
      started = service_.PostInBackground(std::move(job), SnapshotPin(guard));
    }
    const KeyStatus status = started ? KeyStatus::kDefaultPending : KeyStatus::kDefaultDegraded;
    for (size_t i = 0; i < key_count; ++i) table.Answer(open[first + i], status, nullptr);
    first += key_count;
  }
  table.misses.ClearPending();
}

void LevelFetch::PromoteHeld(const LiveModel::Guard& guard) {
  for (FetchTask& task : std::span(tasks_.data(), task_count_)) {
    if (task.job != nullptr) service_.Promote(std::move(task.job), SnapshotPin(guard));
  }
  task_count_ = 0;
}

}  // namespace hps
