#include "update/level_repair.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"

namespace hps {
namespace {

// How long a cache that did not answer is left alone.
constexpr Duration kRestMin = std::chrono::seconds(1);
constexpr Duration kRestMax = std::chrono::seconds(30);

// The keys that lack a watermark get it before the level is emptied: promotions that read old rows
// are refused from then on.
absl::Status Empty(DeviceCacheTable& l1, std::span<const Key> unraised, ApplyEpoch epoch) {
  const Deadline soon = LevelRepair::Soon();
  // If the device hangs, this Flush fails at the deadline, and Clear, which has no deadline, is not
  // called.
  HPS_RETURN_IF_ERROR(l1.Flush(soon));
  HPS_RETURN_IF_ERROR(l1.RaiseWatermarks(unraised, epoch, soon));
  HPS_RETURN_IF_ERROR(l1.Clear());
  return l1.Flush(soon);
}

// False: the keys are noted instead.
template <typename Table>
bool RaiseIn(Table& table, const LevelHealth& health, std::span<const Key> keys, ApplyEpoch epoch,
             NotedKeys& unraised) {
  const bool raised =
      !health.needs_clearing() && table.RaiseWatermarks(keys, epoch, LevelRepair::Soon()).ok();
  if (!raised && unraised.Add(keys)) {
    LogError(
        "a level of a table did not answer during more than a million changes: lookups bypass it "
        "until its model is loaded again");
  }
  return raised;
}

}  // namespace

void LevelRepair::Reset() {
  l1_.fill({});
  l2_.fill({});
}

void LevelRepair::Raise(LiveTable& live, std::span<const Key> keys, ApplyEpoch epoch) {
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    DeviceCacheTable* const l1 = live.l1(cache);
    Cache& state = l1_[cache];
    if (l1 != nullptr && !RaiseIn(*l1, live.l1_health(cache), keys, epoch, state.unraised))
      QuarantineL1(live, cache);
  }
  for (size_t i = 0; i < live.l2().size(); ++i) {
    L2Part& part = live.l2()[i];
    if (!RaiseIn(part.table(), part.health(), keys, epoch, l2_[i])) QuarantineL2(part);
  }
}

void LevelRepair::QuarantineL1(LiveTable& live, size_t cache) {
  Quarantine(live.l1_health(cache), absl::StrCat("level 1 on device ", live.l1_device(cache)));
}

void LevelRepair::Quarantine(LevelHealth& health, std::string_view level) {
  if (!health.needs_clearing()) {
    LogWarning(absl::StrCat(std::string(level), " of table '", table_,
                            "' lacks a change: lookups bypass it until it has been cleared"));
  }
  health.QuarantineUntilCleared();
}

void LevelRepair::Clear(LiveTable& live) {
  for (size_t part = 0; part < live.l2().size(); ++part) ClearL2(live, part);
  for (size_t cache = 0; cache < kCachesMax; ++cache) ClearL1(live, cache);
}

void LevelRepair::ClearL2(LiveTable& live, size_t number) {
  L2Part& part = live.l2()[number];
  NotedKeys& unraised = l2_[number];
  if (!part.health().needs_clearing() || unraised.overflowed()) return;
  const ApplyEpoch epoch = live.epochs().published();
  const bool cleared = part.table().RaiseWatermarks(unraised.keys(), epoch, Soon()).ok() &&
                       part.table().Clear().ok();
  if (!cleared) return;
  unraised = {};
  part.health().Clear();
}

void LevelRepair::ClearL1(LiveTable& live, size_t number) {
  DeviceCacheTable* const l1 = live.l1(number);
  LevelHealth& health = live.l1_health(number);
  Cache& cache = l1_[number];
  if (l1 == nullptr || !health.needs_clearing() || cache.unraised.overflowed()) return;
  if (RealClock().Now() < cache.rests_until) return;
  const ApplyEpoch epoch = live.epochs().published();
  const absl::Status emptied = Empty(*l1, cache.unraised.keys(), epoch);
  if (absl::IsDeadlineExceeded(emptied)) {
    cache.rest = std::clamp(cache.rest * 2, kRestMin, kRestMax);
    cache.rests_until = RealClock().Now() + cache.rest;
  }
  if (!emptied.ok()) return;
  cache = {};
  health.NoteApplied(epoch);
  health.Clear();
}

bool LevelRepair::CanClear(const LiveTable& live) const {
  for (size_t part = 0; part < live.l2().size(); ++part) {
    if (live.l2()[part].health().needs_clearing() && !l2_[part].overflowed()) return true;
  }
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    const bool waits = live.l1(cache) != nullptr && live.l1_health(cache).needs_clearing();
    if (waits && !l1_[cache].unraised.overflowed()) return true;
  }
  return false;
}

}  // namespace hps
