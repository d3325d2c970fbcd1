#include "update/table_applier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/fault_point.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"

namespace hps {
namespace {

// Longest wait for the promotions of a level that began before a change. Beyond it lookups bypass
// the level.
constexpr auto kRaiseWaitMax = std::chrono::seconds(1);

Deadline Soon() { return DeadlineAfter(RealClock(), kRaiseWaitMax); }

// For a wait at whose deadline a cache loses its rows. A caller that has no time left must not be a
// reason for that.
Deadline NotBeforeSoon(Deadline deadline) { return std::max(deadline, Soon()); }

// Whether the cache has the table, and takes changes of it.
bool TakesChanges(const LiveTable& live, size_t cache) {
  return live.l1(cache) != nullptr && !live.l1_health(cache).needs_clearing();
}

bool HasL1(const LiveTable& live) {
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    if (live.l1(cache) != nullptr) return true;
  }
  return false;
}

void SortUnique(std::vector<Key>& keys) {
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
}

absl::Status CheckShape(const TableSpec& spec, const TableApplier::DirectChange& change) {
  const std::string about = absl::StrCat("table '", spec.name, "': ");
  if (change.is_delete) {
    if (change.rows.empty()) return absl::OkStatus();
    return Public(absl::InvalidArgumentError(about + "a delete takes keys only, no rows"));
  }
  if (change.dtype != spec.dtype) {
    return Public(absl::InvalidArgumentError(
        absl::StrCat(about, "the rows are ", std::string(DtypeName(change.dtype)),
                     ", the table has ", std::string(DtypeName(spec.dtype)))));
  }
  if (change.dim != spec.dim) {
    return Public(absl::InvalidArgumentError(
        absl::StrCat(about, "the rows have dim ", change.dim, ", the table has dim ", spec.dim)));
  }
  if (change.rows.size() != change.keys.size() * spec.row_bytes()) {
    return Public(absl::InvalidArgumentError(absl::StrCat(
        about, change.keys.size(), " keys need ", change.keys.size() * spec.row_bytes(),
        " bytes of rows, found ", change.rows.size())));
  }
  return absl::OkStatus();
}

absl::Status OtherSource(const std::string& table, std::string_view has, std::string_view refused) {
  return Public(absl::FailedPreconditionError(absl::StrCat(
      "table '", table, "' takes its changes from ", std::string(has), " since its last import; ",
      std::string(refused), " is refused until it is imported again")));
}

absl::Status WouldReachOneNode(const std::string& table) {
  return Public(absl::FailedPreconditionError(absl::StrCat(
      "table '", table,
      "' was imported with an import id, so that nodes can share its rows: a direct change would "
      "reach this node only. Publish it to the update stream, or import the table without an "
      "import id")));
}

}  // namespace

absl::Status TableApplier::ApplyDirect(const DirectChange& change, Deadline deadline) {
  HPS_ASSIGN_OR_RETURN(const WriteLease lease, registry_.AcquireWriter(table_, deadline));
  HPS_ASSIGN_OR_RETURN(DurableTable* const l3, Open(lease));
  HPS_RETURN_IF_ERROR(CheckShape(l3->spec(), change));
  if (has_import_id_) return WouldReachOneNode(table_);
  if (source_ == Source::kStream)
    return OtherSource(table_, "the update stream", "a direct change");
  if (change.keys.empty()) return absl::OkStatus();
  // A failed change may be visible in level 3, so its version is not used again.
  const uint64_t number = next_direct_++;
  const StreamPosition position = {.generation = kDirectGeneration, .offset = number + 1};
  const std::vector<Version> versions(change.is_delete ? 0 : change.keys.size(),
                                      VersionAt(kDirectGeneration, number));
  DurableWrite write;
  write.positions = {&position, 1};
  if (change.is_delete) {
    write.deletes = change.keys;
  } else {
    const size_t row_bytes = l3->spec().row_bytes();
    write.upserts = {.keys = change.keys,
                     .rows = {.data = const_cast<std::byte*>(change.rows.data()),  // not written
                              .row_count = change.keys.size(),
                              .row_bytes = row_bytes,
                              .stride_bytes = row_bytes},
                     .versions = versions};
  }
  LiveTable* const live = lease.live().get();
  const bool had_pending = !changed_.empty() || overflowed_;
  HPS_RETURN_IF_ERROR(Change(live, *l3, write));
  source_ = Source::kDirect;
  if (live == nullptr || !HasL1(*live)) return absl::OkStatus();
  if (!RefreshDirect(*live, deadline).ok()) {
    for (size_t cache = 0; cache < kCachesMax; ++cache) live->l1_health(cache).Quarantine();
  } else if (!had_pending) {
    changed_.clear();
    overflowed_ = false;
    NoteRefreshed(*live);
  }
  UpdateNeed(*live);
  return absl::OkStatus();
}

absl::Status TableApplier::ApplyStream(const StreamChange& change, Deadline deadline) {
  HPS_ASSIGN_OR_RETURN(const WriteLease lease, registry_.AcquireWriter(table_, deadline));
  HPS_ASSIGN_OR_RETURN(DurableTable* const l3, Open(lease));
  if (l3->incarnation() != change.incarnation) {
    return absl::FailedPreconditionError(
        absl::StrCat("table '", table_, "' was imported again: its stream begins anew"));
  }
  if (source_ == Source::kDirect) return OtherSource(table_, "direct changes", "the update stream");
  publish_times_us_ = change.publish_times_us;
  const absl::Status changed = Change(lease.live().get(), *l3, change.write);
  publish_times_us_ = {};
  HPS_RETURN_IF_ERROR(changed);
  source_ = Source::kStream;
  return absl::OkStatus();
}

// The table in level 3. Forgets what is known of the levels of a LiveTable that was replaced.
absl::StatusOr<DurableTable*> TableApplier::Open(const WriteLease& lease) {
  const std::shared_ptr<LiveTable>& live = lease.live();
  if (live_.owner_before(live) || live.owner_before(live_)) {
    live_ = live;
    changed_.clear();
    l1_times_us_.clear();
    overflowed_ = false;
    needs_refresh_ = false;
    l2_unraised_.assign(kL2PartsMax, UnraisedKeys());
    l1_unraised_.assign(kCachesMax, UnraisedKeys());
    clear_rests_.assign(kCachesMax, ClearRest());
  }
  DurableTable* l3 = nullptr;
  if (live != nullptr) {
    unloaded_ = nullptr;
    l3 = &live->l3();
    if (!l3->IsCurrent()) {
      return Public(absl::UnavailableError(absl::StrCat(
          "table '", table_, "' was imported again or dropped, and its model is not loaded yet")));
    }
  } else {
    if (unloaded_ == nullptr || !unloaded_->IsCurrent()) {
      HPS_ASSIGN_OR_RETURN(unloaded_, store_.OpenTable(table_));
    }
    l3 = unloaded_.get();
  }
  if (l3->incarnation() != incarnation_) HPS_RETURN_IF_ERROR(ReadPositions(*l3));
  return l3;
}

absl::Status TableApplier::ReadPositions(DurableTable& l3) {
  HPS_ASSIGN_OR_RETURN(const std::vector<StreamPosition> positions, l3.Positions());
  source_ = positions.empty() ? Source::kNone : Source::kStream;
  next_direct_ = 1;
  for (const StreamPosition& position : positions) {
    if (position.generation != kDirectGeneration) continue;
    source_ = Source::kDirect;
    next_direct_ = position.offset;
  }
  has_import_id_ = !l3.Info().import_id.empty();
  incarnation_ = l3.incarnation();
  return absl::OkStatus();
}

absl::Status TableApplier::Change(LiveTable* live, DurableTable& l3, const DurableWrite& write) {
  const absl::Status status = live == nullptr ? l3.Write(write) : ChangeLevels(*live, l3, write);
  if (!status.ok()) {
    changes_failed_.fetch_add(1, std::memory_order_relaxed);
    return status;
  }
  if (live == nullptr) NoteL3();
  changes_.fetch_add(1, std::memory_order_relaxed);
  rows_upserted_.fetch_add(write.upserts.keys.size(), std::memory_order_relaxed);
  rows_deleted_.fetch_add(write.deletes.size(), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status TableApplier::ChangeLevels(LiveTable& live, DurableTable& l3,
                                        const DurableWrite& write) {
  ClearLevels(live);
  keys_.assign(write.upserts.keys.begin(), write.upserts.keys.end());
  keys_.insert(keys_.end(), write.deletes.begin(), write.deletes.end());
  SortUnique(keys_);
  const ApplyEpoch epoch = live.epochs().Begin();
  Raise(live, epoch);
  if (live.shared() != nullptr) live.shared()->BeginChange(keys_, epoch, write.positions);
  absl::Status written = ReachFaultPoint("update.change.before_l3");
  if (written.ok()) written = l3.Write(write);
  if (written.ok()) NoteL3();
  if (written.ok()) written = ReachFaultPoint("update.change.before_l2");
  WriteL2(live, write, written.ok());
  NoteChanged(live);
  if (written.ok()) written = ReachFaultPoint("update.change.before_publish");
  live.epochs().Publish(epoch);
  if (written.ok()) NoteL2(live);
  return written;
}

void TableApplier::NoteL3() {
  if (freshness_ != nullptr) freshness_->l3.Add(publish_times_us_);
}

void TableApplier::NoteL2(const LiveTable& live) {
  if (freshness_ == nullptr) return;
  if (!live.l2().empty()) freshness_->l2.Add(publish_times_us_);
  if (!HasL1(live)) return;
  const size_t room = kL1TimesMax - l1_times_us_.size();
  const auto kept = publish_times_us_.first(std::min(room, publish_times_us_.size()));
  l1_times_us_.insert(l1_times_us_.end(), kept.begin(), kept.end());
}

// If the watermarks of a level can't be raised, lookups bypass the level until it has been cleared.
// A level that already waits to be cleared gets its watermarks then, so this function does not wait
// for it. Each level has a deadline of its own, so that a level that hangs leaves the others their
// time.
void TableApplier::Raise(LiveTable& live, ApplyEpoch epoch) {
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    DeviceCacheTable* const l1 = live.l1(cache);
    if (l1 == nullptr) continue;
    if (TakesChanges(live, cache) && l1->RaiseWatermarks(keys_, epoch, Soon()).ok()) continue;
    NoteUnraised(keys_, l1_unraised_[cache]);
    QuarantineL1(live, cache);
  }
  for (size_t i = 0; i < live.l2().size(); ++i) {
    L2Part& part = live.l2()[i];
    const bool raised =
        !part.health().needs_clearing() && part.table().RaiseWatermarks(keys_, epoch, Soon()).ok();
    if (raised) continue;
    NoteUnraised(keys_, l2_unraised_[i]);
    QuarantineL2(part);
  }
}

void TableApplier::QuarantineL1(LiveTable& live, size_t cache) {
  if (live.l1(cache) == nullptr) return;
  Quarantine(live.l1_health(cache), absl::StrCat("level 1 on device ", live.l1_device(cache)));
}

void TableApplier::QuarantineL2(L2Part& part) { Quarantine(part.health(), part.name()); }

// The next refresh clears the level.
void TableApplier::Quarantine(LevelHealth& health, std::string_view level) {
  if (!health.needs_clearing()) {
    LogWarning(absl::StrCat(std::string(level), " of table '", table_,
                            "' lacks a change: lookups bypass it until it has been cleared"));
  }
  health.QuarantineUntilCleared();
  needs_refresh_ = true;
}

// From the last part to the first: a part shows the new rows only after those below it.
void TableApplier::WriteL2(LiveTable& live, const DurableWrite& write, bool written) {
  for (size_t i = live.l2().size(); i > 0; --i) {
    L2Part& part = live.l2()[i - 1];
    // Since BeginChange, this node takes from a shared part no row of these keys that lacks the
    // change.
    if (part.shared() != nullptr && written) part.shared()->EndChange(write);
    if (part.health().needs_clearing()) continue;
    if (!WritePart(part.table(), write, written).ok()) QuarantineL2(part);
  }
}

// If level 3 failed, lookups may see the old rows or the new ones there. Level 2 must not show the
// old ones after the new ones, so it loses the keys.
absl::Status TableApplier::WritePart(LossyTable& part, const DurableWrite& write,
                                     bool written) const {
  if (!written) return part.Erase(keys_).status();
  if (!write.upserts.keys.empty()) HPS_RETURN_IF_ERROR(part.Update(write.upserts).status());
  return write.deletes.empty() ? absl::OkStatus() : part.Erase(write.deletes).status();
}

void TableApplier::NoteChanged(const LiveTable& live) {
  if (!HasL1(live)) return;
  if (changed_.size() + keys_.size() > kChangedKeysMax) {
    SortUnique(changed_);
    if (changed_.size() + keys_.size() > kChangedKeysMax) {
      std::vector<Key>().swap(changed_);
      overflowed_ = true;
    }
  }
  if (!overflowed_) changed_.insert(changed_.end(), keys_.begin(), keys_.end());
  needs_refresh_ = true;
}

void TableApplier::NoteUnraised(std::span<const Key> keys, UnraisedKeys& unraised) {
  if (unraised.overflowed) return;
  unraised.keys.insert(unraised.keys.end(), keys.begin(), keys.end());
  if (unraised.keys.size() <= kChangedKeysMax) return;
  SortUnique(unraised.keys);
  if (unraised.keys.size() <= kChangedKeysMax) return;
  std::vector<Key>().swap(unraised.keys);
  unraised.overflowed = true;
  LogError(
      "a level of a table did not answer during more than a million changes: lookups bypass "
      "it until its model is loaded again");
}

void TableApplier::ClearLevels(LiveTable& live) {
  for (size_t part = 0; part < live.l2().size(); ++part) ClearL2(live, part);
  for (size_t cache = 0; cache < kCachesMax; ++cache) ClearL1(live, cache);
}

void TableApplier::ClearL2(LiveTable& live, size_t number) {
  L2Part& part = live.l2()[number];
  UnraisedKeys& unraised = l2_unraised_[number];
  if (!part.health().needs_clearing() || unraised.overflowed) return;
  const ApplyEpoch epoch = live.epochs().published();
  const bool cleared =
      part.table().RaiseWatermarks(unraised.keys, epoch, Soon()).ok() && part.table().Clear().ok();
  if (!cleared) return;
  unraised = UnraisedKeys();
  part.health().Clear();
}

// A cache that does not answer in time is left alone for a while, so that it costs the others
// nothing meanwhile.
void TableApplier::ClearL1(LiveTable& live, size_t cache) {
  DeviceCacheTable* const l1 = live.l1(cache);
  UnraisedKeys& unraised = l1_unraised_[cache];
  LevelHealth& health = live.l1_health(cache);
  ClearRest& rest = clear_rests_[cache];
  if (l1 == nullptr || !health.needs_clearing() || unraised.overflowed) return;
  if (RealClock().Now() < rest.until) return;
  const ApplyEpoch epoch = live.epochs().published();
  const absl::Status emptied = EmptyL1(*l1, cache, epoch);
  if (absl::IsDeadlineExceeded(emptied)) {
    rest.length = std::clamp(rest.length * 2, kClearRestMin, kClearRestMax);
    rest.until = RealClock().Now() + rest.length;
  }
  if (!emptied.ok()) return;
  unraised = UnraisedKeys();
  rest = ClearRest();
  health.NoteApplied(epoch);
  health.Clear();
}

// The keys that lack a watermark get it before the level is emptied: promotions that read old rows
// are refused from then on.
absl::Status TableApplier::EmptyL1(DeviceCacheTable& l1, size_t cache, ApplyEpoch epoch) {
  const Deadline soon = Soon();
  // If the device hangs, this Flush fails at the deadline, and Clear, which has no deadline, is not
  // called.
  HPS_RETURN_IF_ERROR(l1.Flush(soon));
  HPS_RETURN_IF_ERROR(l1.RaiseWatermarks(l1_unraised_[cache].keys, epoch, soon));
  HPS_RETURN_IF_ERROR(l1.Clear());
  return l1.Flush(soon);
}

absl::Status TableApplier::RefreshChanged(Deadline deadline) {
  while (needs_refresh()) {
    if (overflowed_ || full_is_open_) return GoOnWithFull(deadline);
    HPS_ASSIGN_OR_RETURN(const WriteLease lease, registry_.AcquireWriter(table_, deadline));
    HPS_RETURN_IF_ERROR(Open(lease).status());
    if (lease.live() == nullptr) break;
    HPS_RETURN_IF_ERROR(RefreshStep(*lease.live(), deadline));
    if (changed_.empty()) break;  // a level that could not be cleared waits for the next cycle
  }
  return absl::OkStatus();
}

absl::Status TableApplier::RefreshStep(LiveTable& live, Deadline deadline) {
  ClearLevels(live);
  HPS_ASSIGN_OR_RETURN(const size_t done,
                       RefreshKeys({.live = &live, .keys = changed_, .deadline = deadline},
                                   RealClock().Now() + kRefreshStep));
  changed_.erase(changed_.begin(), changed_.begin() + static_cast<ptrdiff_t>(done));
  if (changed_.empty() && !overflowed_) {
    FlushL1(live, deadline);
    NoteRefreshed(live);
  }
  UpdateNeed(live);
  return absl::OkStatus();
}

// Updates keys in level 1 until `until`, and returns how many are done. Level 1 is yet to be
// flushed.
absl::StatusOr<size_t> TableApplier::RefreshKeys(const RowRefresh::Options& options,
                                                 TimePoint until) {
  RowRefresh refresh(options);
  const absl::StatusOr<size_t> done = refresh.Run(teams_, until);
  rows_refreshed_.fetch_add(refresh.rows_refreshed(), std::memory_order_relaxed);
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    if (refresh.failed(cache)) QuarantineL1(*options.live, cache);
  }
  return done;
}

// The keys of the present change.
absl::Status TableApplier::RefreshDirect(LiveTable& live, Deadline deadline) {
  HPS_RETURN_IF_ERROR(
      RefreshKeys({.live = &live, .keys = keys_, .deadline = deadline}, TimePoint::max()).status());
  FlushL1(live, deadline);
  return absl::OkStatus();
}

// An error of an earlier update shows here at the latest.
void TableApplier::FlushL1(LiveTable& live, Deadline deadline) {
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    if (!TakesChanges(live, cache)) continue;
    if (!live.l1(cache)->Flush(NotBeforeSoon(deadline)).ok()) QuarantineL1(live, cache);
  }
}

absl::Status TableApplier::RefreshAll(Deadline deadline) {
  if (refreshing_all_.exchange(true)) {
    return Public(absl::FailedPreconditionError(
        absl::StrCat("table '", table_, "': a full refresh is running")));
  }
  BeginFull();
  const absl::Status status = RunFull(deadline);
  refreshing_all_ = false;
  return status;
}

// A full refresh because too many keys had changed. It may take several cycles.
absl::Status TableApplier::GoOnWithFull(Deadline deadline) {
  if (refreshing_all_.exchange(true)) return absl::OkStatus();  // another thread runs it
  if (!full_is_open_) BeginFull();
  const absl::Status status = RunFull(deadline);
  refreshing_all_ = false;
  return status;
}

// Keys that change from now on are noted again.
void TableApplier::BeginFull() {
  overflowed_ = false;
  full_ = DumpProgress();
  full_is_open_ = true;
  needs_refresh_ = true;
}

absl::Status TableApplier::RunFull(Deadline deadline) {
  while (!full_.done) HPS_RETURN_IF_ERROR(FullRefreshStep(full_, deadline));
  full_is_open_ = false;
  return absl::OkStatus();
}

absl::Status TableApplier::FullRefreshStep(DumpProgress& progress, Deadline deadline) {
  HPS_ASSIGN_OR_RETURN(const WriteLease lease, registry_.AcquireWriter(table_, deadline));
  HPS_RETURN_IF_ERROR(Open(lease).status());
  LiveTable* const live = lease.live().get();
  if (!progress.begun) progress.live = lease.live();
  progress.begun = true;
  if (live == nullptr || progress.live.lock() != lease.live()) {
    progress.done = true;  // a new LiveTable was filled with current rows
    return absl::OkStatus();
  }
  ClearLevels(*live);
  while (progress.cache < kCachesMax && !TakesChanges(*live, progress.cache))
    GoToNextCache(progress);  // a cache is up to date once it has been cleared
  if (progress.cache < kCachesMax) return RefreshDumped(*live, progress, deadline);
  progress.done = true;
  FlushL1(*live, deadline);
  if (changed_.empty() && !overflowed_) NoteRefreshed(*live);
  full_is_open_ = false;
  UpdateNeed(*live);
  return absl::OkStatus();
}

// The keys of the next part are dumped while those of this one are refreshed. The failure of a
// cache is not an error: the cache will be cleared, and the refresh goes on with the next one.
absl::Status TableApplier::RefreshDumped(LiveTable& live, DumpProgress& progress,
                                         Deadline deadline) {
  absl::Status dumped;
  const auto dump = [&] { dumped = DumpNext(live, progress, deadline); };
  if (progress.keys.empty()) {
    if (progress.next.empty() && !progress.at_end) dump();
    progress.keys.swap(progress.next);
    progress.next.clear();
  }
  if (progress.keys.empty()) {
    if (!dumped.ok()) QuarantineL1(live, progress.cache);
    GoToNextCache(progress);
    return absl::OkStatus();
  }
  RowRefresh::Options options = {
      .live = &live, .keys = progress.keys, .cache = progress.cache, .deadline = deadline};
  if (progress.next.empty() && !progress.at_end) options.beside = dump;
  HPS_ASSIGN_OR_RETURN(const size_t done, RefreshKeys(options, RealClock().Now() + kRefreshStep));
  progress.keys.erase(progress.keys.begin(), progress.keys.begin() + static_cast<ptrdiff_t>(done));
  if (!dumped.ok()) QuarantineL1(live, progress.cache);
  return absl::OkStatus();
}

void TableApplier::GoToNextCache(DumpProgress& progress) {
  ++progress.cache;
  progress.cursor = 0;
  progress.keys.clear();
  progress.next.clear();
  progress.at_end = false;
}

absl::Status TableApplier::DumpNext(LiveTable& live, DumpProgress& progress, Deadline deadline) {
  progress.next.resize(kDumpKeys);
  const auto count =
      live.l1(progress.cache)->Dump(&progress.cursor, progress.next, NotBeforeSoon(deadline));
  progress.next.resize(count.value_or(0));
  progress.at_end = count.ok() && *count == 0;
  return count.status();
}

// Level 1 has every change. REQUIRES: no key is noted.
void TableApplier::NoteRefreshed(LiveTable& live) {
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    if (TakesChanges(live, cache)) live.l1_health(cache).NoteApplied(live.epochs().published());
  }
  if (freshness_ != nullptr) freshness_->l1.Add(l1_times_us_);
  l1_times_us_.clear();
}

void TableApplier::UpdateNeed(LiveTable& live) {
  bool needs = false;
  for (size_t i = 0; i < live.l2().size(); ++i)
    needs |= live.l2()[i].health().needs_clearing() && !l2_unraised_[i].overflowed;
  for (size_t cache = 0; cache < kCachesMax; ++cache) {
    if (live.l1(cache) == nullptr) continue;
    needs |= !changed_.empty() || overflowed_ || full_is_open_;
    needs |= live.l1_health(cache).needs_clearing() && !l1_unraised_[cache].overflowed;
  }
  needs_refresh_ = needs;
}

size_t TableApplier::RefreshHelpers(size_t workers) {
  return std::clamp<size_t>(workers * 3 / 4, 1, kHelpersMax);
}

TableApplier::Counts TableApplier::counts() const {
  return {.changes = changes_.load(std::memory_order_relaxed),
          .rows_upserted = rows_upserted_.load(std::memory_order_relaxed),
          .rows_deleted = rows_deleted_.load(std::memory_order_relaxed),
          .changes_failed = changes_failed_.load(std::memory_order_relaxed),
          .rows_refreshed = rows_refreshed_.load(std::memory_order_relaxed)};
}

}  // namespace hps
