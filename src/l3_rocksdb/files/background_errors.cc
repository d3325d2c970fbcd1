#include "l3_rocksdb/files/background_errors.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/logging.h"

namespace hps {

using rocksdb::BackgroundErrorReason;
using rocksdb::Status;

void BackgroundErrors::OnBackgroundError(BackgroundErrorReason reason, Status* status) {
  LogError(absl::StrCat("store: background error (reason ", static_cast<int>(reason),
                        "): ", status->ToString()));
  if (status->IsIOError()) {
    // RocksDB retries a compaction after a second, and no write waits for it.
    if (reason == BackgroundErrorReason::kCompaction) {
      *status = Status::OK();
      MutexLock lock(mutex_);
      ++compaction_error_count_;
      return;
    }
    *status = Status(*status, Status::Severity::kSoftError);
  }
  {
    MutexLock lock(mutex_);
    if (!is_final_) last_ = *status;
    is_final_ |= status->severity() > Status::Severity::kSoftError;
    ++error_count_;
    any_pending_ = true;
  }
  NoteChange();
}

// Prevents RocksDB's own recovery, which waits for space on a full disk.
void BackgroundErrors::OnErrorRecoveryBegin(BackgroundErrorReason, Status, bool* auto_recovery) {
  *auto_recovery = false;
}

void BackgroundErrors::OnFlushCompleted(rocksdb::DB*, const rocksdb::FlushJobInfo&) {
  NoteChange();
}

void BackgroundErrors::OnStallConditionsChanged(const rocksdb::WriteStallInfo&) { NoteChange(); }

BackgroundErrors::Pending BackgroundErrors::pending() const {
  MutexLock lock(mutex_);
  if (error_count_ == recovered_count_) return {.count = error_count_};
  return {.error = last_, .count = error_count_, .is_final = is_final_};
}

uint64_t BackgroundErrors::count() const {
  MutexLock lock(mutex_);
  return error_count_ + compaction_error_count_;
}

void BackgroundErrors::NoteRecovered(uint64_t count) {
  MutexLock lock(mutex_);
  recovered_count_ = std::max(recovered_count_, count);
  any_pending_ = recovered_count_ != error_count_;
}

void BackgroundErrors::NoteChange() {
  {
    MutexLock lock(mutex_);
    ++change_count_;
  }
  changed_.NotifyAll();
}

uint64_t BackgroundErrors::change_count() const {
  MutexLock lock(mutex_);
  return change_count_;
}

bool BackgroundErrors::WaitForChange(uint64_t seen, Deadline deadline) const {
  MutexLock lock(mutex_);
  while (change_count_ == seen) {
    if (!changed_.WaitUntil(mutex_, deadline)) return change_count_ != seen;
  }
  return true;
}

}  // namespace hps
