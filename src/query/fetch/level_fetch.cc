#include "query/fetch/level_fetch.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"

namespace hps {
namespace {

// A call with many misses is cut into about as many jobs as a machine has workers to spare, but
// not into pieces smaller than RocksDB takes at a time.
constexpr size_t kJobsWanted = 8;

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

size_t LevelFetch::TakeNextPart(TableLookup& table) {
  if (table.misses.pending().empty()) return kNoLevel;
  for (size_t part = 0; part < table.table->l2().size(); ++part) {
    if (!std::exchange(table.asks_l2[part], false)) continue;
    L2Part& l2 = table.table->l2()[part];
    if (!l2.can_block() || l2.breaker().Admits(service_.clock().Now())) return part;
  }
  return kNoLevel;
}

bool LevelFetch::CanBlock(const TableLookup& table) {
  return table.level == kLevel3 || table.table->l2()[table.level].can_block();
}

LossyTier* LevelFetch::TierOf(const TableLookup& table) {
  if (table.level == kLevel3 || !CanBlock(table)) return nullptr;
  return table.table->l2()[table.level].tier();
}

bool LevelFetch::FetchFromL2(std::span<TableLookup> tables, const LiveModel::Guard& guard) {
  for (bool any_part = false;; any_part = true) {
    bool any = false;
    for (TableLookup& table : tables) {
      table.level = TakeNextPart(table);
      any |= table.level != kNoLevel;
    }
    if (!any) return any_part;
    Fetch(tables, guard, deadlines_.OfL2(), [] {});
  }
}

void LevelFetch::FetchFromL3(std::span<TableLookup> tables, const LiveModel::Guard& guard,
                             AfterBatch after_batch) {
  for (TableLookup& table : tables) {
    table.level = kLevel3;
    table.misses.SortPendingByKey();
  }
  Fetch(tables, guard, deadlines_.of_call(), after_batch);
}

void LevelFetch::Fetch(std::span<TableLookup> tables, const LiveModel::Guard& guard,
                       Deadline deadline, AfterBatch after_batch) {
  size_t open_count = 0;
  for (TableLookup& table : tables) {
    if (table.level == kNoLevel) continue;
    open_count += table.misses.pending().size();
    table.misses.BeginFilter();
  }
  job_keys_max_ = std::max(kFetchPieceKeysMax, open_count / kJobsWanted);
  Progress progress;
  while (open_count > 0) {
    PromoteHeld(guard);
    BuildBatch(tables, deadline, &progress);
    if (task_count_ == 0) break;
    SubmitBatch(guard, deadline);
    CollectBatch();
    after_batch();
  }
  LeaveRestPending(tables, progress);
}

void LevelFetch::BuildBatch(std::span<TableLookup> tables, Deadline deadline, Progress* progress) {
  const bool too_late = service_.clock().Now() >= deadline || deadlines_.is_cancelled();
  for (; progress->table < tables.size(); ++progress->table, progress->open = 0) {
    TableLookup& table = tables[progress->table];
    if (table.level == kNoLevel) continue;
    const size_t open_count = table.misses.pending().size();
    if (too_late && CanBlock(table)) {
      table.misses.KeepFrom(progress->open);
      continue;
    }
    while (progress->open < open_count) {
      if (task_count_ == kJobsPerCallMax || !AddTask(table, progress->open, deadline)) return;
      progress->open += tasks_[task_count_ - 1].key_count;
    }
  }
}

bool LevelFetch::AddTask(TableLookup& table, size_t first, Deadline deadline) {
  // A tier that answers jobs together answers a large job as fast as several small ones.
  const size_t keys_max = TierOf(table) == nullptr ? job_keys_max_ : kFetchTaskKeysMax;
  const size_t row_bytes = table.table->row_bytes();
  const size_t key_count =
      std::min({table.misses.pending().size() - first, keys_max, FetchJob::KeysMax(row_bytes)});
  FetchJobLease job = AcquireJob(table, key_count);
  if (job == nullptr) return false;
  job->Prepare(table.JobAt(table.level, deadline), key_count);
  FillKeys(table.misses, first, *job);
  tasks_[task_count_++] = {
      .job = std::move(job), .table = &table, .first = first, .key_count = key_count};
  return true;
}

// In the scratch buffer of the job before, if there is room.
FetchJobLease LevelFetch::AcquireJob(const TableLookup& table, size_t key_count) {
  if (task_count_ == 0) {
    scratches_left_ = service_.FairShare(table.level);
  } else {
    FetchJobLease job =
        service_.AcquireBehind(*tasks_[task_count_ - 1].job, key_count, table.table->row_bytes());
    if (job != nullptr) return job;
  }
  if (scratches_left_ == 0) return nullptr;
  --scratches_left_;
  return service_.Acquire(table.level);
}

void LevelFetch::SubmitBatch(const LiveModel::Guard& guard, Deadline deadline) {
  const std::span<FetchTask> batch(tasks_.data(), task_count_);
  const auto blocking = [](const FetchTask& task) { return CanBlock(*task.table); };
  latch_.Reset(static_cast<size_t>(std::count_if(batch.begin(), batch.end(), blocking)));
  for (size_t first = 0; first < task_count_;) {
    const std::span<FetchTask> call = TasksOfCall(first);
    if (blocking(call.front())) PostCall(call, guard);
    first += call.size();
  }
  for (FetchTask& task : batch) {
    if (blocking(task)) continue;
    task.job->Fetch();
    task.answered = true;
  }
  CancelPoint::Await(deadlines_.cancel(), service_.fetch_executor(), latch_, deadline);
}

// A call has no more keys than a job may have, so that a large lookup is answered by several
// workers and no node is kept busy for long.
std::span<LevelFetch::FetchTask> LevelFetch::TasksOfCall(size_t first) {
  const LossyTier* const tier = TierOf(*tasks_[first].table);
  size_t end = first + 1;
  size_t key_count = tasks_[first].key_count;
  while (tier != nullptr && end < task_count_ && TierOf(*tasks_[end].table) == tier &&
         key_count + tasks_[end].key_count <= kFetchTaskKeysMax) {
    key_count += tasks_[end++].key_count;
  }
  return std::span(tasks_).subspan(first, end - first);
}

void LevelFetch::PostCall(std::span<FetchTask> tasks, const LiveModel::Guard& guard) {
  std::array<FetchJob*, kJobsPerCallMax> jobs{};
  for (size_t i = 0; i < tasks.size(); ++i) jobs[i] = tasks[i].job.get();
  const bool posted = service_.Post(std::span(jobs).first(tasks.size()), guard, latch_);
  for (FetchTask& task : tasks) {
    task.posted = posted;
    if (!posted) latch_.CountDown();  // the queue is full: as if the level were down
  }
}

void LevelFetch::CollectBatch() {
  for (FetchTask& task : std::span(tasks_.data(), task_count_)) {
    const size_t level = task.table->level;
    if (task.posted) task.answered = task.job->TryCollect();
    if (task.posted && !task.answered) {
      latch_.CountDown();  // the task, which keeps the job, will not
      // A call that was given up says nothing about the level.
      if (level != kLevel3 && !deadlines_.is_cancelled()) {
        task.table->table->l2()[level].NoteFailure(service_.clock().Now());
        task.table->counters->l2_errors().Add(absl::StatusCode::kDeadlineExceeded);
      }
    } else if (task.posted && level != kLevel3 && !task.job->failed()) {
      task.table->table->l2()[level].breaker().NoteAnswer();
    }
    CopyOut(task);
    if (task.posted && !task.answered) static_cast<void>(task.job.release());
    if (!task.answered) task.job.reset();
  }
}

void LevelFetch::CopyOut(FetchTask& task) {
  TableLookup& table = *task.table;
  for (size_t i = 0; i < task.key_count; ++i) {
    const uint32_t index = table.misses.pending()[task.first + i];
    const FetchOutcome outcome = task.answered ? task.job->outcomes()[i] : FetchOutcome::kMiss;
    if (outcome == FetchOutcome::kHit) {
      const KeyStatus hit = task.job->is_from_l2(i) ? KeyStatus::kHitL2 : KeyStatus::kHitL3;
      table.Answer(index, hit, task.job->row(i));
    } else if (outcome == FetchOutcome::kAbsent) {
      table.Answer(index, KeyStatus::kAbsent, nullptr);
    } else if (outcome == FetchOutcome::kLost && table.level == kLevel3) {
      table.Answer(index, KeyStatus::kDefaultDegraded, nullptr);
    } else {
      table.misses.Keep(index);
    }
  }
}

void LevelFetch::LeaveRestPending(std::span<TableLookup> tables, Progress progress) {
  for (size_t i = 0; i < tables.size(); ++i) {
    if (tables[i].level == kNoLevel) continue;
    if (i >= progress.table) tables[i].misses.KeepFrom(i == progress.table ? progress.open : 0);
    tables[i].misses.EndFilter();
  }
}

void LevelFetch::FetchInBackground(TableLookup& table, size_t level,
                                   const LiveModel::Guard& guard) {
  level = LevelToAsk(*table.table, level, service_.clock().Now());
  if (level == kLevel3) table.misses.SortPendingByKey();
  const std::span<const uint32_t> open = table.misses.pending();
  const FetchJob::Spec order = table.JobAt(level, kNoDeadline);
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
