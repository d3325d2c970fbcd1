#include "update/l1_refresh.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "base/public_message.h"

namespace hps {
namespace {

constexpr auto kStep = std::chrono::milliseconds(20);
// Keys that a full refresh dumps at a time. A smaller dump costs more waits for the updates
// before it; a larger one keeps the device's small copies of lookups waiting: 2 MiB take 40 us.
constexpr size_t kDumpKeys = size_t{256} << 10;
// Publish times that are kept until level 1 has the changes; those beyond are not counted.
constexpr size_t kTimesMax = 4096;

// For a wait at whose deadline a cache loses its rows. A caller that has no time left must not be a
// reason for that.
Deadline NotBeforeSoon(Deadline deadline) { return std::max(deadline, LevelRepair::Soon()); }

bool HasL1(const LiveTable& live) {
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    if (live.l1(cache) != nullptr) return true;
  }
  return false;
}

}  // namespace

void L1Refresh::Reset() {
  changed_ = {};
  times_us_.clear();
  full_.reset();
  need_ = Need::kNothing;
}

void L1Refresh::Note(const LiveTable& live, std::span<const Key> keys,
                     std::span<const int64_t> publish_times_us) {
  if (HasL1(live)) {
    changed_.Add(keys);
    const size_t room = kTimesMax - times_us_.size();
    const auto kept = publish_times_us.first(std::min(room, publish_times_us.size()));
    times_us_.insert(times_us_.end(), kept.begin(), kept.end());
  }
  UpdateNeed(live);
}

void L1Refresh::RefreshNow(LiveTable& live, std::span<const Key> keys, Deadline deadline) {
  if (HasL1(live)) {
    const RowRefresh::Options options = {.live = &live, .keys = keys, .deadline = deadline};
    if (RefreshKeys(options, TimePoint::max()).ok()) {
      Finish(live, deadline);
    } else {
      changed_.Add(keys);
      for (size_t cache = 0; cache < kCachesMax; ++cache) live.l1_health(cache).Quarantine();
    }
  }
  UpdateNeed(live);
}

// Updates keys in level 1 until `until`, and returns how many are done. Level 1 is yet to be
// flushed.
absl::StatusOr<size_t> L1Refresh::RefreshKeys(const RowRefresh::Options& options, TimePoint until) {
  RowRefresh refresh(options);
  const absl::StatusOr<size_t> done = refresh.Run(options_.teams, until);
  rows_refreshed_.fetch_add(refresh.rows_refreshed(), std::memory_order_relaxed);
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    if (refresh.failed(cache)) options_.levels->QuarantineL1(*options.live, cache);
  }
  return done;
}

// An error of an earlier update shows here at the latest. If no key is left, also not for a full
// refresh, which covers keys that are not noted, level 1 has every change.
void L1Refresh::Finish(LiveTable& live, Deadline deadline) {
  const bool has_all = changed_.empty() && !full_.has_value();
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    if (!LevelRepair::TakesChanges(live, cache)) continue;
    if (!live.l1(cache)->Flush(NotBeforeSoon(deadline)).ok()) {
      options_.levels->QuarantineL1(live, cache);
    } else if (has_all) {
      live.l1_health(cache).NoteApplied(live.epochs().published());
    }
  }
  if (!has_all) return;
  if (options_.freshness != nullptr) options_.freshness->Add(times_us_);
  times_us_.clear();
}

absl::Status L1Refresh::RefreshChanged(Deadline deadline) {
  while (is_needed()) {
    if (needs_full()) {
      if (full_is_running_.exchange(true)) return absl::OkStatus();  // another thread runs it
      return RunFull(deadline);
    }
    HPS_ASSIGN_OR_RETURN(const WriteLease lease, options_.acquire(deadline));
    if (lease.live() == nullptr) break;
    HPS_RETURN_IF_ERROR(ChangedStep(*lease.live(), deadline));
    if (changed_.keys().empty()) break;  // a level that can't be cleared waits for the next cycle
  }
  return absl::OkStatus();
}

absl::Status L1Refresh::ChangedStep(LiveTable& live, Deadline deadline) {
  options_.levels->Clear(live);
  HPS_ASSIGN_OR_RETURN(const size_t done,
                       RefreshKeys({.live = &live, .keys = changed_.keys(), .deadline = deadline},
                                   RealClock().Now() + kStep));
  changed_.RemoveFirst(done);
  if (changed_.empty()) Finish(live, deadline);
  UpdateNeed(live);
  return absl::OkStatus();
}

absl::Status L1Refresh::RefreshAll(Deadline deadline) {
  if (full_is_running_.exchange(true)) {
    return Public(absl::FailedPreconditionError(
        absl::StrCat("table '", options_.table, "': a full refresh is running")));
  }
  full_is_wanted_ = true;
  return RunFull(deadline);
}

// REQUIRES: the caller has set full_is_running_.
absl::Status L1Refresh::RunFull(Deadline deadline) {
  absl::StatusOr<bool> goes_on = FullStep(deadline);
  while (goes_on.ok() && *goes_on) goes_on = FullStep(deadline);
  full_is_running_ = false;
  return goes_on.status();
}

// False: the full refresh is done, or its LiveTable was replaced by one that was filled with
// current rows.
absl::StatusOr<bool> L1Refresh::FullStep(Deadline deadline) {
  HPS_ASSIGN_OR_RETURN(const WriteLease lease, options_.acquire(deadline));
  const bool is_wanted = full_is_wanted_.exchange(false);
  if (lease.live() == nullptr) return false;
  LiveTable& live = *lease.live();
  if (is_wanted || (changed_.overflowed() && !full_.has_value())) {
    changed_ = {};
    full_ = DumpProgress();
    need_ = Need::kAll;
  }
  if (!full_.has_value()) return false;
  options_.levels->Clear(live);
  while (full_->cache < kCachesMax && !LevelRepair::TakesChanges(live, full_->cache))
    GoToNextCache();  // a cache is up to date once it has been cleared
  const bool goes_on = full_->cache < kCachesMax;
  if (goes_on) {
    HPS_RETURN_IF_ERROR(RefreshDumped(live, deadline));
  } else {
    full_.reset();
    Finish(live, deadline);
  }
  UpdateNeed(live);
  return goes_on;
}

// The keys of the next part are dumped while those of this one are refreshed. The failure of a
// cache is not an error: the cache will be cleared, and the refresh goes on with the next one.
absl::Status L1Refresh::RefreshDumped(LiveTable& live, Deadline deadline) {
  DumpProgress& progress = *full_;
  const size_t cache = progress.cache;
  absl::Status dumped;
  const auto dump = [&] { dumped = DumpNext(live, deadline); };
  if (progress.keys.empty()) {
    if (progress.next.empty() && !progress.at_end) dump();
    progress.keys.swap(progress.next);
    progress.next.clear();
  }
  if (progress.keys.empty()) {
    GoToNextCache();
  } else {
    RowRefresh::Options options = {
        .live = &live, .keys = progress.keys, .cache = cache, .deadline = deadline};
    if (progress.next.empty() && !progress.at_end) options.beside = dump;
    HPS_ASSIGN_OR_RETURN(const size_t done, RefreshKeys(options, RealClock().Now() + kStep));
    progress.keys.erase(progress.keys.begin(),
                        progress.keys.begin() + static_cast<ptrdiff_t>(done));
  }
  if (!dumped.ok()) options_.levels->QuarantineL1(live, cache);
  return absl::OkStatus();
}

absl::Status L1Refresh::DumpNext(LiveTable& live, Deadline deadline) {
  full_->next.resize(kDumpKeys);
  const auto count =
      live.l1(full_->cache)->Dump(&full_->cursor, full_->next, NotBeforeSoon(deadline));
  full_->next.resize(count.value_or(0));
  full_->at_end = count.ok() && *count == 0;
  return count.status();
}

void L1Refresh::UpdateNeed(const LiveTable& live) {
  const bool needs_all = changed_.overflowed() || full_.has_value();
  const bool needs_changed = !changed_.empty() || options_.levels->CanClear(live);
  need_ = needs_all ? Need::kAll : needs_changed ? Need::kChanged : Need::kNothing;
}

size_t L1Refresh::Helpers(size_t workers) {
  return std::clamp<size_t>(workers * 3 / 4, 1, kHelpersMax);
}

}  // namespace hps
