#include "l3_rocksdb/background_errors.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace hps {

void BackgroundErrors::OnBackgroundError(rocksdb::BackgroundErrorReason reason,
                                         rocksdb::Status* status) {
  LogError(absl::StrCat("store: background error (reason ", static_cast<int>(reason),
                        "), writes may pause: ", status->ToString()));
  // The compaction is tried again a second later, and nothing else stops.
  if (reason == rocksdb::BackgroundErrorReason::kCompaction && status->IsIOError()) return;
  // An attempt to recover asserts that no file is deleted where the MANIFEST could not be written,
  // and not every such error takes care of that. A successful attempt allows it again.
  if (rocksdb::DB* const database = database_.load(); database != nullptr)
    database->DisableFileDeletions().PermitUncheckedError();
  MutexLock lock(mutex_);
  last_ = *status;
  ++count_;
}

void BackgroundErrors::OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                                            bool* auto_recovery) {
  *auto_recovery = false;
}

BackgroundErrors::Pending BackgroundErrors::pending() const {
  MutexLock lock(mutex_);
  if (count_ == recovered_count_) return {};
  return {.error = last_, .count = count_};
}

void BackgroundErrors::NoteRecovered(uint64_t count) {
  MutexLock lock(mutex_);
  recovered_count_ = std::max(recovered_count_, count);
}

}  // namespace hps
