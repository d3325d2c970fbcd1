// The thread for sync = "interval". It makes each write durable within the interval.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace hps {

// Thread-safe. Destroy it before the objects that `sync` uses.
class LogSyncer {
 public:
  // `sync` makes everything written so far durable. Errors: RESOURCE_EXHAUSTED (no thread).
  static absl::StatusOr<std::unique_ptr<LogSyncer>> Create(std::function<absl::Status()> sync,
                                                           Duration interval);
  ~LogSyncer();
  LogSyncer(const LogSyncer&) = delete;
  LogSyncer& operator=(const LogSyncer&) = delete;

  // Tells the thread about a write that was not synced.
  void NoteWrite();

 private:
  LogSyncer(std::function<absl::Status()> sync, Duration interval);
  void Run();

  const std::function<absl::Status()> sync_;
  const Duration interval_;
  Mutex mutex_;
  CondVar changed_;
  bool dirty_ HPS_GUARDED_BY(mutex_) = false;
  bool stopping_ HPS_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace hps
