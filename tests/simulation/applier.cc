#include "tests/simulation/applier.h"

#include <algorithm>

#include "base/macros.h"

namespace hps {

SimulatedApplier::SimulatedApplier(SimulatedTable& table, size_t cache_count, Executor& executor,
                                   uint64_t seed, size_t change_count)
    : table_(table),
      cache_count_(cache_count),
      executor_(executor),
      random_(seed),
      changes_left_(change_count),
      version_(table.first_version()),
      missed_by_l1_(cache_count, false) {
  HPS_CHECK(executor_.Post(this).ok());
}

void SimulatedApplier::Run() {
  running_ = true;
  step_ = NextStep();
  running_ = false;
  if (step_ != Step::kDone) HPS_CHECK(executor_.Post(this).ok());
}

void SimulatedApplier::OnSwitch() {
  HPS_CHECK(idle());
  version_ = table_.first_version();
  stream_.clear();
  ForgetLevels();
}

const std::vector<SimulatedApplier::Change>& SimulatedApplier::Crash() {
  HPS_CHECK(!running_);
  const bool is_drawn =
      step_ == Step::kRaiseL1 || step_ == Step::kRaiseL2 || step_ == Step::kWriteL3;
  if (is_drawn) AppendChange();
  return stream_;
}

void SimulatedApplier::OnRestart() {
  if (step_ != Step::kDone) step_ = Step::kBegin;
  ForgetLevels();
}

void SimulatedApplier::ForgetLevels() {
  missed_by_l2_ = {};
  missed_by_l1_.assign(cache_count_, false);
  unraised_.clear();
  to_refresh_.clear();
}

SimulatedApplier::Step SimulatedApplier::NextStep() {
  LiveTable& served = *table_.served;
  const bool publishes_early = table_.context->defect == Defect::kPublishTooEarly;
  switch (step_) {
    case Step::kBegin:
      if (changes_left_ == 0) return AfterPublish();
      DrawChange();
      epoch_ = served.epochs().Begin();
      return Step::kRaiseL1;
    case Step::kRaiseL1:
      RaiseL1();
      return Step::kRaiseL2;
    case Step::kRaiseL2:
      for (const L2Part& part : served.l2())
        HPS_CHECK(part.table().RaiseWatermarks(changed_, epoch_, kNoDeadline).ok());
      return Step::kWriteL3;
    case Step::kWriteL3:
      if (!WriteL3()) return Step::kWriteL3;
      if (publishes_early) served.epochs().Publish(epoch_);
      parts_written_ = 0;
      return Step::kWriteL2;
    case Step::kWriteL2:
      if (parts_written_ > 0 && random_() % 8 != 0) return Step::kWriteL2;  // Redis takes its time
      ++parts_written_;
      WriteL2(table_.context->defect == Defect::kFirstPartFirst
                  ? parts_written_ - 1
                  : served.l2().size() - parts_written_);
      return parts_written_ < served.l2().size() ? Step::kWriteL2 : Step::kPublish;
    case Step::kPublish:
      if (!publishes_early) served.epochs().Publish(epoch_);
      return AfterPublish();
    case Step::kClearL2:
      return ClearL2() ? AfterPublish() : Step::kClearL2;
    case Step::kClearL1:
      return ClearL1() ? AfterPublish() : Step::kClearL1;
    case Step::kRefresh:
      if (!RefreshL1()) return Step::kRefresh;
      if (changes_left_ > 0) return Step::kBegin;
      return l1_missed() ? Step::kClearL1 : Step::kDone;
    case Step::kDone:
      break;
  }
  return Step::kDone;
}

// What is due between two changes; only the last change makes all of it due.
SimulatedApplier::Step SimulatedApplier::AfterPublish() {
  const bool last = changes_left_ == 0;
  if (l2_missed() && (last || random_() % 4 == 0)) return Step::kClearL2;
  if (l1_missed() && (last || random_() % 4 == 0)) return Step::kClearL1;
  if (last || random_() % 3 == 0) return Step::kRefresh;
  return Step::kBegin;
}

void SimulatedApplier::DrawChange() {
  --changes_left_;
  ++version_;
  changed_.clear();
  deleted_.clear();
  upserts_.emplace(table_);
  appended_ = false;
  std::sample(table_.keys.begin(), table_.keys.end(), std::back_inserter(changed_),
              1 + random_() % 5, random_);
  for (Key key : changed_) {
    if (random_() % 5 == 0) {
      deleted_.push_back(key);
    } else {
      upserts_->Add(key, version_);
    }
  }
}

void SimulatedApplier::AppendChange() {
  if (appended_) return;
  appended_ = true;
  Change& change = stream_.emplace_back();
  change.version = version_;
  change.deleted = deleted_;
  for (Key key : changed_) {
    const bool absent = std::find(deleted_.begin(), deleted_.end(), key) != deleted_.end();
    table_.history.Append(key, {.version = version_, .absent = absent});
    if (!absent) change.upserted.push_back(key);
  }
}

// False: nothing was acknowledged; the same is written again.
bool SimulatedApplier::WriteL3() {
  AppendChange();
  const StreamPosition position{.partition = 0, .offset = version_ - table_.first_version()};
  return table_.served->l3()
      .Write({.upserts = upserts_->batch(), .deletes = deleted_, .positions = {&position, 1}})
      .ok();
}

void SimulatedApplier::WriteL2(size_t number) {
  L2Part& part = table_.served->l2()[number];
  const bool updated = part.table().Update(upserts_->batch()).ok();
  const bool erased = part.table().Erase(deleted_).ok();
  to_refresh_.insert(changed_.begin(), changed_.end());
  if (updated && erased) return;
  missed_by_l2_[number] = true;
  if (table_.context->defect != Defect::kBypassForgotten) part.health().QuarantineUntilCleared();
}

bool SimulatedApplier::l2_missed() const {
  return std::ranges::any_of(missed_by_l2_, [](bool missed) { return missed; });
}

bool SimulatedApplier::ClearL2() {
  for (size_t number = 0; number < table_.served->l2().size(); ++number) {
    if (!missed_by_l2_[number]) continue;
    L2Part& part = table_.served->l2()[number];
    if (!part.table().Clear().ok()) return false;
    part.health().Clear();
    missed_by_l2_[number] = false;
    ++clear_count_;
  }
  return true;
}

// False: L3 could not be asked; the keys stay due.
bool SimulatedApplier::RefreshL1() {
  const std::vector<Key> keys(to_refresh_.begin(), to_refresh_.end());
  std::vector<std::byte> rows(keys.size() * table_.row_bytes());
  std::vector<FetchOutcome> outcomes(keys.size());
  const FetchBatch fetch{.keys = keys,
                         .rows = {rows.data(), keys.size(), table_.row_bytes(), table_.row_bytes()},
                         .outcomes = outcomes};
  if (!table_.served->l3().Fetch(fetch, kNoDeadline).ok()) return false;
  to_refresh_.clear();
  if (table_.context->defect == Defect::kRefreshForgotten) return true;
  for (size_t cache = 0; cache < cache_count_; ++cache) {
    if (RefreshOne(*table_.served->l1(cache), fetch)) {
      table_.served->l1_health(cache).NoteApplied(table_.served->epochs().published());
    } else {
      NoteMissedByL1(cache);
    }
  }
  return true;
}

// False: one of the changes may be missing.
bool SimulatedApplier::RefreshOne(DeviceCacheTable& l1, const FetchBatch& fetched) {
  bool all = true;
  for (size_t i = 0; i < fetched.keys.size(); ++i) {
    const RowBatch one{.keys = fetched.keys.subspan(i, 1),
                       .rows = {fetched.rows.row(i), 1, table_.row_bytes(), table_.row_bytes()}};
    if (fetched.outcomes[i] == FetchOutcome::kHit) all &= l1.Update(one, kNoDeadline).ok();
    if (fetched.outcomes[i] == FetchOutcome::kAbsent) all &= l1.Erase(one.keys, kNoDeadline).ok();
  }
  return l1.Flush(kNoDeadline).ok() && all;
}

void SimulatedApplier::RaiseL1() {
  for (size_t cache = 0; cache < cache_count_; ++cache) {
    if (table_.served->l1(cache)->RaiseWatermarks(changed_, epoch_, kNoDeadline).ok()) continue;
    unraised_.insert(changed_.begin(), changed_.end());
    NoteMissedByL1(cache);
  }
}

void SimulatedApplier::NoteMissedByL1(size_t cache) {
  missed_by_l1_[cache] = true;
  if (table_.context->defect != Defect::kL1BypassForgotten)
    table_.served->l1_health(cache).QuarantineUntilCleared();
}

// False: to be tried again. Promotions that the missing watermarks would have kept out are refused
// before what they may have brought is removed.
bool SimulatedApplier::ClearL1() {
  const std::vector<Key> unraised(unraised_.begin(), unraised_.end());
  const ApplyEpoch epoch = table_.served->epochs().published();
  for (size_t cache = 0; cache < cache_count_; ++cache) {
    if (!missed_by_l1_[cache]) continue;
    DeviceCacheTable& l1 = *table_.served->l1(cache);
    if (!l1.RaiseWatermarks(unraised, epoch, kNoDeadline).ok() || !l1.Clear().ok()) return false;
    table_.served->l1_health(cache).NoteApplied(epoch);
    table_.served->l1_health(cache).Clear();
    missed_by_l1_[cache] = false;
    ++l1_clear_count_;
  }
  unraised_.clear();
  return true;
}

bool SimulatedApplier::l1_missed() const {
  return std::find(missed_by_l1_.begin(), missed_by_l1_.end(), true) != missed_by_l1_.end();
}

}  // namespace hps
