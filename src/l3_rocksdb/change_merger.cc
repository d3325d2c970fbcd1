#include "l3_rocksdb/change_merger.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "base/public_message.h"
#include "l3_pages/page_merge.h"

namespace hps {
namespace {

// A switch of which it is unknown whether it was written.
constexpr Duration kConfirmInterval = std::chrono::seconds(1);

double SecondsSince(TimePoint begin) {
  return std::chrono::duration<double>(RealClock().Now() - begin).count();
}

}  // namespace

ChangeMerger::ChangeMerger(std::shared_ptr<Database> database,
                           std::function<void(const FamilyPin&)> on_switch)
    : database_(std::move(database)), on_switch_(std::move(on_switch)) {}

absl::StatusOr<std::unique_ptr<ChangeMerger>> ChangeMerger::Start(
    std::shared_ptr<Database> database, std::function<void(const FamilyPin&)> on_switch) {
  std::unique_ptr<ChangeMerger> merger(new ChangeMerger(std::move(database), std::move(on_switch)));
  HPS_ASSIGN_OR_RETURN(merger->thread_, WorkerPool::Create({.name = "hps-merge", .queue_max = 1}));
  HPS_RETURN_IF_ERROR(merger->thread_->Post(merger.get()));
  return merger;
}

ChangeMerger::~ChangeMerger() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (running_ != nullptr) running_->to().merge.Cancel();
  }
  database_->merge_queue().Request();
  thread_.reset();  // waits for it
}

bool ChangeMerger::stopping() const {
  MutexLock lock(mutex_);
  return stopping_;
}

void ChangeMerger::SetRunning(TableMerge* merge) {
  MutexLock lock(mutex_);
  running_ = merge;
  if (running_ != nullptr && stopping_) running_->to().merge.Cancel();
}

void ChangeMerger::Run() {
  while (!stopping()) {
    database_->files().Retire(database_->merge_queue().TakeRetired());
    const std::vector<std::string> due = TablesToMerge();
    Deadline next = kNoDeadline;
    bool any = false;
    for (const std::string& table : due) {
      const auto retry = retry_at_.find(table);
      if (retry != retry_at_.end() && retry->second > RealClock().Now()) {
        next = std::min(next, retry->second);
        continue;
      }
      if (stopping()) break;
      MergeTable(table);
      any = true;
    }
    if (!any) database_->merge_queue().Await(next);
  }
  database_->files().Retire(database_->merge_queue().TakeRetired());
}

std::vector<std::string> ChangeMerger::TablesToMerge() const {
  return database_->families().TablesThat(
      [this](Family& family) { return database_->merge_queue().IsDue(family); });
}

void ChangeMerger::MergeTable(const std::string& table) {
  const TimePoint begin = RealClock().Now();
  const std::string what =
      absl::StrCat("store '", database_->path(), "': merging the changes of table '", table, "'");
  uint64_t bytes = 0;
  absl::Status merged;
  {
    absl::StatusOr<std::unique_ptr<TableMerge>> merge = TableMerge::Begin(*database_, table);
    merged = merge.status();
    if (merged.ok()) {
      SetRunning(merge->get());
      merged = MergeNow(**merge);
      SetRunning(nullptr);
      if ((*merge)->is_switched()) bytes = (*merge)->to().pages->table->file_bytes();
      if ((*merge)->is_switched()) {
        ++database_->merge_queue().merges;
        database_->merge_queue().merged_bytes += bytes;
        LogInfo(absl::StrCat(what, ": ", (*merge)->to().table.row_count, " rows, ", bytes,
                             " bytes in ", SecondsSince(begin), " s"));
        // A sync, for example. Trying again would merge nothing.
        if (!merged.ok())
          LogError(absl::StrCat(what, ": done, but an error followed: ", TextForLog(merged)));
        merged = absl::OkStatus();
        retry_at_.erase(table);
      }
      End(**merge);
    }
  }
  if (merged.ok() || absl::IsCancelled(merged) || absl::IsNotFound(merged)) return;
  ++database_->merge_queue().merges_failed;
  const Duration retry = database_->store().options().merge_retry;
  retry_at_[table] = DeadlineAfter(RealClock(), retry);
  LogError(absl::StrCat(
      what, " failed; the table is served as before, and the merge is tried again in ",
      std::chrono::duration_cast<std::chrono::seconds>(retry).count(), " s: ", TextForLog(merged)));
}

absl::StatusOr<PageFileDescription> ChangeMerger::BuildFile(TableMerge& merge) {
  PageMergeOptions options;
  options.path = merge.path();
  options.incarnation = merge.to().table.incarnation;
  options.bytes_per_second = database_->store().options().config.merge_bytes_per_second;
  // Writers of all tables need the room more.
  options.check = [this] { return database_->store().space().CheckRoomFor(0); };
  try {
    return MergePages(*merge.from().pages->table, merge.changes(), options,
                      merge.to().merge.cancel);
  } catch (const std::bad_alloc&) {
    return OutOfMemory("out of memory for the merge");
  }
}

absl::Status ChangeMerger::MergeNow(TableMerge& merge) {
  HPS_ASSIGN_OR_RETURN(const PageFileDescription file, BuildFile(merge));
  if (merge.to().merge.is_cancelled) return absl::CancelledError("the merge was cancelled");
  HPS_FAULT_POINT("l3.merge.after_build");
  return merge.Switch(file, on_switch_);
}

void ChangeMerger::End(TableMerge& merge) {
  while (!merge.End()) {
    if (stopping()) return merge.Leave();
    database_->merge_queue().Await(DeadlineAfter(RealClock(), kConfirmInterval));
  }
}

}  // namespace hps
