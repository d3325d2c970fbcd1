#include "serving/live_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"

namespace hps {
namespace {

void AddLevel(const LevelStatistics& part, LevelStatistics* sum) {
  sum->entries += part.entries;
  sum->absent_entries += part.absent_entries;
  sum->bytes_used += part.bytes_used;
  sum->bytes_max += part.bytes_max;
  sum->insertions += part.insertions;
  sum->updates += part.updates;
  sum->evictions += part.evictions;
  sum->refused += part.refused;
  sum->dropped += part.dropped;
  sum->not_admitted += part.not_admitted;
  sum->errors += part.errors;
  for (size_t i = 0; i < kStatusCodeCount; ++i) sum->errors_by_code[i] += part.errors_by_code[i];
}

// The counts are those of the first part, where memory is; of the rows that no room was found for,
// those of all parts. What Redis holds is not known by table.
void AddLevel2(const LiveTable& table, TableStatistics* of_table) {
  bool is_first = true;
  for (const L2Part& part : table.l2()) {
    const LevelStatistics statistics = part.table().Statistics();
    if (std::exchange(is_first, false)) {
      of_table->l2 = statistics;
    } else {
      of_table->l2.dropped += statistics.dropped;
    }
    of_table->l2_bypassed |= part.breaker().is_open() || part.health().needs_clearing();
  }
}

}  // namespace

LiveModel::LiveModel(std::string name, EpochDomain& domain, Executor& reclaim_executor)
    : name_(std::move(name)), domain_(domain), reclaim_executor_(reclaim_executor) {
  current_owned_ = std::make_unique<const ModelSnapshot>(ModelSnapshot::Parts{});
  current_.store(current_owned_.get(), std::memory_order_seq_cst);
  domain_.AddWaiter(this);
}

LiveModel::~LiveModel() {
  domain_.RemoveWaiter(this);
  HPS_CHECK(!reclaim_posted_.load());
  MutexLock lock(mutex_);
  for (const Retired& retired : retired_) HPS_CHECK(CanReclaim(retired));
  domain_.EndWaiting(retired_.size());
  HPS_CHECK(current_owned_->pins_.load() == 0);
}

absl::Status LiveModel::Publish(std::vector<std::shared_ptr<LiveTable>> tables, uint64_t version,
                                std::shared_ptr<const ModelNetwork> network) {
  {
    MutexLock lock(mutex_);
    size_t new_names = 0;
    for (const std::shared_ptr<LiveTable>& table : tables) {
      HPS_CHECK(table != nullptr);
      if (std::find(slot_names_.begin(), slot_names_.end(), table->spec().name) ==
          slot_names_.end()) {
        ++new_names;
      }
    }
    if (slot_names_.size() + new_names > kTablesPerStoreMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("model '", name_, "': more than ", kTablesPerStoreMax, " table names"));
    }
    Replace(std::move(tables), version == 0 ? current_owned_->version() : version, false,
            std::move(network));
  }
  PostReclaim();
  return absl::OkStatus();
}

void LiveModel::Unload() {
  {
    MutexLock lock(mutex_);
    Replace({}, current_owned_->version(), true, nullptr);
  }
  PostReclaim();
}

void LiveModel::Replace(std::vector<std::shared_ptr<LiveTable>> tables, uint64_t version,
                        bool unloaded, std::shared_ptr<const ModelNetwork> network) {
  for (const std::shared_ptr<LiveTable>& table : tables) SlotForName(table->spec().name);
  std::vector<LiveTable*> by_slot(slot_names_.size());
  for (const std::shared_ptr<LiveTable>& table : tables) {
    LiveTable*& of_slot = by_slot[SlotForName(table->spec().name)];
    HPS_CHECK(of_slot == nullptr);  // no two tables have one name
    of_slot = table.get();
  }
  auto next = std::make_unique<const ModelSnapshot>(
      ModelSnapshot::Parts{.tables = std::move(tables),
                           .by_slot = std::move(by_slot),
                           .number = current_owned_->number() + 1,
                           .version = version,
                           .unloaded = unloaded,
                           .network = std::move(network)});
  std::list<Retired> retired(1);  // from here on nothing may fail: readers see both
  current_.store(next.get(), std::memory_order_seq_cst);
  std::swap(current_owned_, next);
  const uint64_t epoch = domain_.Advance();
  for (const std::shared_ptr<LiveTable>& old : next->tables()) {
    const auto now = current_owned_->tables();
    if (std::find(now.begin(), now.end(), old) == now.end()) old->Retire();
  }
  retired.front() = {.snapshot = std::move(next), .epoch = epoch};
  retired_.splice(retired_.end(), retired);
  retired_count_.fetch_add(1, std::memory_order_acq_rel);
  domain_.BeginWaiting();
}

SnapshotPin LiveModel::PinCurrent() {
  MutexLock lock(mutex_);  // keeps it from being replaced, and hence from being freed
  return SnapshotPin(this, current_owned_.get());
}

std::shared_ptr<const ModelNetwork> LiveModel::Network() const {
  MutexLock lock(mutex_);
  return current_owned_->network();
}

bool LiveModel::AwaitReclaimed(Deadline deadline) {
  PostReclaim();  // the executor's queue may have been full when the last guard ended
  MutexLock lock(mutex_);
  while (!retired_.empty() || freeing_count_ != 0) {
    if (!reclaimed_.WaitUntil(mutex_, deadline)) return retired_.empty() && freeing_count_ == 0;
  }
  return true;
}

size_t LiveModel::SlotForName(const std::string& name) {
  const auto found = std::find(slot_names_.begin(), slot_names_.end(), name);
  if (found != slot_names_.end()) return static_cast<size_t>(found - slot_names_.begin());
  // Counters first: if memory ends between the two, a name still has counters.
  if (counters_.size() == slot_names_.size()) counters_.emplace_back();
  slot_names_.push_back(name);
  return slot_names_.size() - 1;
}

std::shared_ptr<LiveTable> LiveModel::CurrentTable(std::string_view name) const {
  MutexLock lock(mutex_);
  for (const std::shared_ptr<LiveTable>& table : current_owned_->tables()) {
    if (table->spec().name == name) return table;
  }
  return nullptr;
}

uint64_t LiveModel::version() const {
  MutexLock lock(mutex_);
  return current_owned_->version();
}

std::vector<std::shared_ptr<LiveTable>> LiveModel::Tables() const {
  MutexLock lock(mutex_);
  return {current_owned_->tables().begin(), current_owned_->tables().end()};
}

size_t LiveModel::SlotOf(std::string_view name) const {
  MutexLock lock(mutex_);
  const auto found = std::find(slot_names_.begin(), slot_names_.end(), name);
  HPS_CHECK(found != slot_names_.end());
  return static_cast<size_t>(found - slot_names_.begin());
}

LookupCounters& LiveModel::counters(size_t slot) {
  MutexLock lock(mutex_);
  HPS_CHECK(slot < counters_.size());
  return counters_[slot];
}

std::vector<TableStatistics> LiveModel::Statistics() const {
  // The tables are kept alive by their own pointers; asking the levels may take a while.
  std::vector<TableStatistics> statistics;
  for (const std::shared_ptr<LiveTable>& table : Tables()) {
    TableStatistics of_table{.name = table->spec().name};
    const size_t slot = SlotOf(of_table.name);
    const LookupCounters& counters = [&]() -> const LookupCounters& {
      MutexLock lock(mutex_);
      return counters_[slot];
    }();
    of_table.keys = counters.Sum();
    for (size_t cache = 0; cache < kCachesMax; ++cache) {
      const DeviceCacheTable* l1 = table->l1(cache);
      if (l1 == nullptr) continue;
      const LookupCounters::CacheCounts counts = counters.SumOf(cache);
      of_table.l1_devices.push_back({.device = static_cast<int>(cache),
                                     .hits = counts.hits,
                                     .misses = counts.misses,
                                     .l1 = l1->Statistics()});
      AddLevel(of_table.l1_devices.back().l1, &of_table.l1);
    }
    AddLevel2(*table, &of_table);
    of_table.l1.errors += counters.l1_errors().AddTo(&of_table.l1.errors_by_code);
    of_table.l2.errors += counters.l2_errors().AddTo(&of_table.l2.errors_by_code);
    statistics.push_back(std::move(of_table));
  }
  return statistics;
}

// Once its epoch is safe, no guard that could see the snapshot is held. New pins can then come only
// from existing pins, so a pin count of 0 stays 0.
bool LiveModel::CanReclaim(const Retired& retired) const {
  return domain_.SafeEpoch() >= retired.epoch &&
         retired.snapshot->pins_.load(std::memory_order_acquire) == 0;
}

bool LiveModel::HasReclaimable() const {
  MutexLock lock(mutex_);
  return std::any_of(retired_.begin(), retired_.end(),
                     [&](const Retired& retired) { return CanReclaim(retired); });
}

void LiveModel::OnGuardEnded() {
  if (retired_count_.fetch_add(0, std::memory_order_acq_rel) != 0) PostReclaim();
}

void LiveModel::PostReclaim() {
  if (reclaim_posted_.exchange(true, std::memory_order_acq_rel)) return;
  // If the queue is full, the end of the next guard tries again; queued tasks end guards.
  if (!reclaim_executor_.Post(&reclaim_task_).ok())
    reclaim_posted_.store(false, std::memory_order_release);
}

void LiveModel::Reclaim() {
  std::list<Retired> free_now;  // freed at the end, outside the lock; nothing here allocates
  {
    MutexLock lock(mutex_);
    const auto first = std::partition(retired_.begin(), retired_.end(),
                                      [&](const Retired& old) { return !CanReclaim(old); });
    free_now.splice(free_now.end(), retired_, first, retired_.end());
    retired_count_.fetch_sub(free_now.size(), std::memory_order_acq_rel);
    domain_.EndWaiting(free_now.size());
    freeing_count_ += free_now.size();
  }
  const size_t freed_count = free_now.size();
  free_now.clear();
  {
    MutexLock lock(mutex_);
    freeing_count_ -= freed_count;
  }
  reclaimed_.NotifyAll();
  // An exchange, so that HasReclaimable sees a guard that ended meanwhile and found the task
  // posted.
  reclaim_posted_.exchange(false, std::memory_order_acq_rel);
  if (HasReclaimable()) PostReclaim();
}

void SnapshotPin::Unpin::operator()(const ModelSnapshot* snapshot) const {
  snapshot->pins_.fetch_sub(1, std::memory_order_acq_rel);
  state->OnGuardEnded();
}

}  // namespace hps
