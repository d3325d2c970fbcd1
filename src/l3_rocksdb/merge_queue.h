// Which tables have enough changes for a merge, what the threads of a store tell its merger
// (change_merger.h), and what the merger has done.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "l3_rocksdb/family.h"
#include "l3_rocksdb/store_db.h"

namespace hps {

class MergeQueue {
 public:
  explicit MergeQueue(StoreDb& store) : store_(store) {}
  // Destroys the handles of the families that were not taken.
  ~MergeQueue();

  // Call this after keys were added to the family's changed_keys.
  void NoteChanges(Family& family);
  // Whether the changes of the table are to be merged now.
  bool IsDue(Family& family) const;

  // The changes of some table may be due.
  void Request();
  // Waits for a request since the last call, or until the deadline.
  void Await(Deadline deadline);

  // The last reader of a family that was merged has left. The merger drops the family, because that
  // takes time which the reader may not have.
  void Retire(std::unique_ptr<Family> family);
  std::vector<std::unique_ptr<Family>> TakeRetired();

  // See DurableStatistics.
  std::atomic<uint64_t> merges{0};
  std::atomic<uint64_t> merged_bytes{0};
  std::atomic<uint64_t> merges_failed{0};

 private:
  uint64_t ChangesToMerge(const Family& family) const;
  uint64_t Threshold(const Family& family) const;

  StoreDb& store_;
  Mutex mutex_;
  CondVar requested_changed_;
  bool requested_ HPS_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Family>> retired_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
