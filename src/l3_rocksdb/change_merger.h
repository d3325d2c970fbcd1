// The thread of a writer that merges changes of tables into new page files, one table after the
// other (docs/page_files.md, "Merging").
//
// A table is due when enough of its keys have changed (StoreConfig::merge_share). Lookups and
// writes go on meanwhile. A merge that fails leaves the table as it was; it is logged and counted,
// and tried again later.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "l3_rocksdb/table_merge.h"

namespace hps {

// Thread-safe.
class ChangeMerger final : private Task {
 public:
  // `on_switch` is called when a table has new page files, while no write of the table runs; it
  // moves the open tables. Errors: RESOURCE_EXHAUSTED (no thread).
  static absl::StatusOr<std::unique_ptr<ChangeMerger>> Start(
      std::shared_ptr<Database> database, std::function<void(const FamilyPin&)> on_switch);
  // Ends a merge that runs, without its result.
  ~ChangeMerger() override;
  ChangeMerger(const ChangeMerger&) = delete;
  ChangeMerger& operator=(const ChangeMerger&) = delete;

 private:
  ChangeMerger(std::shared_ptr<Database> database, std::function<void(const FamilyPin&)> on_switch);
  void Run() override;
  std::vector<std::string> TablesToMerge() const;
  void MergeTable(const std::string& table);
  absl::StatusOr<PageFileDescription> BuildFile(TableMerge& merge);
  absl::Status MergeNow(TableMerge& merge);
  void End(TableMerge& merge);
  void SetRunning(TableMerge* merge);
  bool stopping() const;

  const std::shared_ptr<Database> database_;
  const std::function<void(const FamilyPin&)> on_switch_;
  // Of the thread: when a table may be tried again after a merge that failed.
  std::map<std::string, TimePoint> retry_at_;
  mutable Mutex mutex_;
  bool stopping_ HPS_GUARDED_BY(mutex_) = false;
  TableMerge* running_ HPS_GUARDED_BY(mutex_) = nullptr;
  std::unique_ptr<WorkerPool> thread_;
};

}  // namespace hps
