#include "update/group_sync.h"

namespace hps {

absl::Status GroupSync::Sync() {
  MutexLock lock(mutex_);
  const uint64_t needed = begun_ + 1;
  for (;;) {
    if (done_ >= needed) return last_;
    if (running_) {
      ended_.Wait(mutex_);
      continue;
    }
    running_ = true;
    const uint64_t number = ++begun_;
    mutex_.Unlock();
    absl::Status status = store_.Sync();
    mutex_.Lock();
    running_ = false;
    done_ = number;
    last_ = std::move(status);
    ended_.NotifyAll();
  }
}

}  // namespace hps
