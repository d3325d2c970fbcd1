#include "l3_rocksdb/merge_queue.h"

#include <algorithm>

namespace hps {

MergeQueue::~MergeQueue() {
  for (const auto& family : TakeRetired()) store_.db().DestroyColumnFamilyHandle(family->handle);
}

// Changed keys that make a merge worth while.
uint64_t MergeQueue::ChangesToMerge(const Family& family) const {
  const double share =
      store_.options().config.merge_share * static_cast<double>(family.table.row_count);
  return std::max({store_.options().merge_keys_min, static_cast<uint64_t>(share), uint64_t{1}});
}

uint64_t MergeQueue::Threshold(const Family& family) const {
  return std::max(ChangesToMerge(family), family.merge.due_from.load(std::memory_order_relaxed));
}

void MergeQueue::NoteChanges(Family& family) {
  if (store_.options().config.merge_share == 0 ||
      family.changed_keys.added_count() < Threshold(family) || family.merge.is_requested)
    return;
  if (!family.merge.is_requested.exchange(true)) Request();
}

// A filter that is full counts a key whenever it is written. RocksDB's estimate then decides.
bool MergeQueue::IsDue(Family& family) const {
  const uint64_t added = family.changed_keys.added_count();
  if (added < Threshold(family)) return false;
  if (!family.changed_keys.has_all()) return true;
  uint64_t estimate = 0;
  store_.db().GetIntProperty(family.handle, rocksdb::DB::Properties::kEstimateNumKeys, &estimate);
  const uint64_t wanted = ChangesToMerge(family);
  if (estimate >= wanted) return true;
  family.merge.due_from = added + wanted - estimate;
  family.merge.is_requested = false;
  return false;
}

void MergeQueue::Request() {
  MutexLock lock(mutex_);
  requested_ = true;
  requested_changed_.NotifyAll();
}

void MergeQueue::Await(Deadline deadline) {
  MutexLock lock(mutex_);
  while (!requested_) {
    if (deadline == kNoDeadline) {
      requested_changed_.Wait(mutex_);
    } else if (!requested_changed_.WaitUntil(mutex_, deadline)) {
      break;
    }
  }
  requested_ = false;
}

void MergeQueue::Retire(std::unique_ptr<Family> family) {
  {
    MutexLock lock(mutex_);
    retired_.push_back(std::move(family));
  }
  Request();
}

std::vector<std::unique_ptr<Family>> MergeQueue::TakeRetired() {
  MutexLock lock(mutex_);
  return std::exchange(retired_, {});
}

}  // namespace hps
