// std::mutex, its scoped lock and its condition variable, with clang's thread-safety attributes.
//
// absl::Mutex is not used because Debian builds Abseil without instrumentation, and ThreadSanitizer
// then reports races in correct programs. ARCHITECTURE.md has the lock order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/macros.h"

namespace hps {

class HPS_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() HPS_ACQUIRE() { mutex_.lock(); }
  void Unlock() HPS_RELEASE() { mutex_.unlock(); }
  bool TryLock() HPS_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class HPS_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HPS_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() HPS_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// May wake spuriously: wait in a loop that checks the condition.
class CondVar {
 public:
  // REQUIRES: the caller holds `mutex`; it holds it again on return.
  void Wait(Mutex& mutex) HPS_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // False if `deadline` has passed.
  bool WaitUntil(Mutex& mutex, std::chrono::steady_clock::time_point deadline) HPS_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace hps
