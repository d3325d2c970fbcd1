#include "query/fetch/level_fetch.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"

namespace hps {
namespace {

// A call with many misses is cut into about as many jobs as a machine has workers to spare, but
// not into pieces smaller than RocksDB takes at a time.
constexpr size_t kJobsWanted = 8;

FetchJob::Order OrderFor(const TableWork& table, FetchJob::Level level, Deadline deadline) {
  return {.table = table.table,
          .counters = table.counters,
          .level = level,
          .cache = table.cache,
          .epoch = table.epoch,
          .l2_bypassed = table.l2_bypassed,
          .deadline = deadline};
}

void FillKeys(const MissList& misses, size_t first, std::span<Key> keys) {
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = misses.key(misses.open()[first + i]);
}

}  // namespace

bool LevelFetch::Wanted(const TableWork& table, FetchJob::Level level) {
  return level == FetchJob::Level::kL3 || table.l2_usable;
}

bool LevelFetch::CanBlock(const TableWork& table, FetchJob::Level level) {
  return level == FetchJob::Level::kL3 || table.table->l2()->can_block();
}

void LevelFetch::Fetch(std::span<TableWork> tables, FetchJob::Level level,
                       const ModelState::Guard& guard, Deadline deadline, AfterWave after_wave) {
  size_t open_count = 0;
  for (TableWork& table : tables) {
    if (level == FetchJob::Level::kL2) BypassFailing(table);
    if (!Wanted(table, level)) continue;
    open_count += table.misses.open().size();
    if (level == FetchJob::Level::kL3) table.misses.SortOpenByKey();
    table.misses.BeginNarrowing();
  }
  job_keys_max_ = std::max(kFetchPieceKeysMax, open_count / kJobsWanted);
  Progress progress;
  while (open_count > 0) {
    PromoteHeld(guard);
    FillWave(tables, level, deadline, &progress);
    if (flight_count_ == 0) break;
    FlyWave(level, guard, deadline);
    LandWave(level);
    after_wave();
  }
  LeaveRestOpen(tables, level, progress);
}

void LevelFetch::BypassFailing(TableWork& table) {
  if (!table.l2_usable || !table.table->l2()->can_block() || table.misses.open().empty()) return;
  if (table.table->l2_breaker().Admits(service_.clock().Now())) return;
  table.l2_usable = false;
  table.l2_bypassed = true;
}

void LevelFetch::FillWave(std::span<TableWork> tables, FetchJob::Level level, Deadline deadline,
                          Progress* progress) {
  const size_t flights_max = std::min(kWaveJobsMax, service_.FairShare(level));
  const bool too_late = IsTooLate(deadline);
  for (; progress->table < tables.size(); ++progress->table, progress->open = 0) {
    TableWork& table = tables[progress->table];
    if (!Wanted(table, level)) continue;
    const size_t open_count = table.misses.open().size();
    if (too_late && CanBlock(table, level)) {
      for (; progress->open < open_count; ++progress->open)
        table.misses.StaysOpen(table.misses.open()[progress->open]);
      continue;
    }
    while (progress->open < open_count) {
      if (flight_count_ == flights_max) return;
      if (!AddFlight(table, level, progress->open, deadline)) return;
      progress->open += flights_[flight_count_ - 1].key_count;
    }
  }
}

bool LevelFetch::AddFlight(TableWork& table, FetchJob::Level level, size_t first,
                           Deadline deadline) {
  FetchJobLease job = service_.Acquire(level);
  if (job == nullptr) return false;
  const size_t key_count = std::min({table.misses.open().size() - first, job_keys_max_,
                                     FetchJob::KeysMax(table.table->row_bytes())});
  job->Prepare(OrderFor(table, level, deadline), key_count);
  FillKeys(table.misses, first, job->keys());
  flights_[flight_count_++] = {
      .job = std::move(job), .table = &table, .first = first, .key_count = key_count};
  return true;
}

void LevelFetch::FlyWave(FetchJob::Level level, const ModelState::Guard& guard, Deadline deadline) {
  const std::span<Flight> wave(flights_.data(), flight_count_);
  const auto blocking = [&](const Flight& flight) { return CanBlock(*flight.table, level); };
  latch_.Reset(static_cast<size_t>(std::count_if(wave.begin(), wave.end(), blocking)));
  for (Flight& flight : wave) {
    if (!blocking(flight)) continue;
    flight.posted = service_.Post(*flight.job, SnapshotPin(guard), latch_);
    if (!flight.posted) latch_.CountDown();  // the queue is full: as if the level were down
  }
  for (Flight& flight : wave) {
    if (blocking(flight)) continue;
    flight.job->Fetch();
    flight.answered = true;
  }
  CancelPoint::Await(cancel_, service_.fetch_executor(), latch_, deadline);
}

bool LevelFetch::IsTooLate(Deadline deadline) const {
  return service_.clock().Now() >= deadline || is_cancelled();
}

void LevelFetch::LandWave(FetchJob::Level level) {
  for (Flight& flight : std::span(flights_.data(), flight_count_)) {
    if (flight.posted) flight.answered = flight.job->Take();
    if (flight.posted && !flight.answered) {
      latch_.CountDown();  // in place of the task, which no longer will
      // A call that was given up says nothing about the level.
      if (level == FetchJob::Level::kL2 && !is_cancelled()) {
        flight.table->table->l2_bypass().Trip();
        flight.table->table->l2_breaker().NoteFailure(service_.clock().Now());
        flight.table->counters->l2_errors().Add(absl::StatusCode::kDeadlineExceeded);
      }
    } else if (flight.posted && level == FetchJob::Level::kL2 && !flight.job->failed()) {
      flight.table->table->l2_breaker().NoteAnswer();
    }
    CopyOut(flight, level);
    if (flight.posted && !flight.answered) static_cast<void>(flight.job.release());
    if (!flight.answered) flight.job.reset();
  }
}

void LevelFetch::CopyOut(Flight& flight, FetchJob::Level level) {
  TableWork& table = *flight.table;
  for (size_t i = 0; i < flight.key_count; ++i) {
    const uint32_t index = table.misses.open()[flight.first + i];
    const FetchOutcome outcome = flight.answered ? flight.job->outcomes()[i] : FetchOutcome::kMiss;
    if (outcome == FetchOutcome::kHit) {
      const bool of_l2 = flight.job->level(i) == FetchJob::Level::kL2;
      table.Answer(index, of_l2 ? KeyStatus::kHitL2 : KeyStatus::kHitL3, flight.job->row(i));
    } else if (outcome == FetchOutcome::kAbsent) {
      table.Answer(index, KeyStatus::kAbsent, nullptr);
    } else if (outcome == FetchOutcome::kLost && level == FetchJob::Level::kL3) {
      table.Answer(index, KeyStatus::kDefaultDegraded, nullptr);
    } else {
      table.misses.StaysOpen(index);
    }
  }
}

void LevelFetch::LeaveRestOpen(std::span<TableWork> tables, FetchJob::Level level,
                               Progress progress) {
  for (size_t i = 0; i < tables.size(); ++i) {
    if (!Wanted(tables[i], level)) continue;
    MissList& misses = tables[i].misses;
    if (i >= progress.table) {
      const size_t first = i == progress.table ? progress.open : 0;
      for (size_t j = first; j < misses.open().size(); ++j) misses.StaysOpen(misses.open()[j]);
    }
    misses.EndNarrowing();
  }
}

void LevelFetch::FetchInBackground(TableWork& table, FetchJob::Level level,
                                   const ModelState::Guard& guard) {
  if (level == FetchJob::Level::kL2) {
    BypassFailing(table);
    if (table.l2_bypassed) level = FetchJob::Level::kL3;
  }
  if (level == FetchJob::Level::kL3) table.misses.SortOpenByKey();
  const std::span<const uint32_t> open = table.misses.open();
  const FetchJob::Order order = OrderFor(table, level, kNoDeadline);
  const bool has_taker = FetchJob::HasTaker(order);
  for (size_t first = 0; first < open.size();) {
    const size_t key_count =
        std::min(open.size() - first, FetchJob::KeysMax(table.table->row_bytes()));
    bool started = false;
    if (FetchJobLease job = has_taker ? service_.Acquire(level) : nullptr) {
      job->Prepare(order, key_count);
      FillKeys(table.misses, first, job->keys());
      started = service_.PostInBackground(std::move(job), SnapshotPin(guard));
    }
    const KeyStatus status = started ? KeyStatus::kDefaultPending : KeyStatus::kDefaultDegraded;
    for (size_t i = 0; i < key_count; ++i) table.Answer(open[first + i], status, nullptr);
    first += key_count;
  }
  table.misses.CloseAll();
}

void LevelFetch::PromoteHeld(const ModelState::Guard& guard) {
  for (Flight& flight : std::span(flights_.data(), flight_count_)) {
    if (flight.job != nullptr) service_.Promote(std::move(flight.job), SnapshotPin(guard));
  }
  flight_count_ = 0;
}

}  // namespace hps
