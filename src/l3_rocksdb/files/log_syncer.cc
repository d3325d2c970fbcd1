#include "l3_rocksdb/files/log_syncer.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"

namespace hps {

LogSyncer::LogSyncer(std::function<absl::Status()> sync, Duration interval)
    : sync_(std::move(sync)), interval_(interval), thread_([this] { Run(); }) {}

absl::StatusOr<std::unique_ptr<LogSyncer>> LogSyncer::Create(std::function<absl::Status()> sync,
                                                             Duration interval) {
  try {
    return std::unique_ptr<LogSyncer>(new LogSyncer(std::move(sync), interval));
  } catch (const std::system_error& error) {  // the one way std::thread reports it
    return absl::ResourceExhaustedError(
        absl::StrCat("can't start the sync thread: ", error.what()));
  }
}

LogSyncer::~LogSyncer() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void LogSyncer::NoteWrite() {
  MutexLock lock(mutex_);
  if (dirty_) return;
  dirty_ = true;
  changed_.NotifyAll();
}

void LogSyncer::Run() {
  mutex_.Lock();
  for (;;) {
    while (!dirty_ && !stopping_) changed_.Wait(mutex_);
    // Waits for the whole interval after the first write; only a stop ends the wait early.
    const Deadline due = DeadlineAfter(RealClock(), interval_);
    while (!stopping_ && changed_.WaitUntil(mutex_, due)) {
    }
    if (!dirty_) break;  // stopping
    dirty_ = false;
    mutex_.Unlock();
    const absl::Status synced = sync_();
    if (!synced.ok()) LogError(absl::StrCat("store: syncing the WAL failed: ", synced.ToString()));
    mutex_.Lock();
    if (!synced.ok() && !stopping_) dirty_ = true;  // tries again after the next interval
  }
  mutex_.Unlock();
}

}  // namespace hps
