#include "l3_rocksdb/background_errors.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace hps {

void BackgroundErrors::OnBackgroundError(rocksdb::BackgroundErrorReason reason,
                                         rocksdb::Status* status) {
  pending_.store(true, std::memory_order_release);
  count_.fetch_add(1, std::memory_order_relaxed);
  LogError(absl::StrCat("store: background error (reason ", static_cast<int>(reason),
                        "), writes may pause: ", status->ToString()));
}

void BackgroundErrors::OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status,
                                            bool* auto_recovery) {
  *auto_recovery = false;
}

void BackgroundErrors::OnErrorRecoveryCompleted(rocksdb::Status old_error) {
  pending_.store(false, std::memory_order_release);
  LogWarning(absl::StrCat("store: recovered from: ", old_error.ToString()));
}

}  // namespace hps
