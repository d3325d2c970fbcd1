#include "base/executor.h"

#include <pthread.h>

#include <system_error>

#include "absl/strings/str_cat.h"

namespace hps {

void Latch::Reset(size_t count) {
  MutexLock lock(mutex_);
  HPS_CHECK(remaining_ == 0);
  remaining_ = count;
  interrupted_ = false;
}

void Latch::Interrupt() {
  MutexLock lock(mutex_);
  interrupted_ = true;
  opened_.NotifyAll();
}

bool Latch::IsInterrupted() const {
  MutexLock lock(mutex_);
  return interrupted_;
}

void Latch::CountDown() {
  MutexLock lock(mutex_);
  HPS_CHECK(remaining_ > 0);
  // Notifies under the lock: the waiter may destroy the latch as soon as it sees zero.
  if (--remaining_ == 0) opened_.NotifyAll();
}

bool Latch::IsOpen() const {
  MutexLock lock(mutex_);
  return remaining_ == 0;
}

bool Latch::WaitUntil(Deadline deadline) {
  MutexLock lock(mutex_);
  while (remaining_ > 0 && !interrupted_) {
    if (deadline == kNoDeadline) {
      opened_.Wait(mutex_);
    } else if (!opened_.WaitUntil(mutex_, deadline)) {
      return remaining_ == 0;
    }
  }
  return remaining_ == 0;
}

void TaskQueue::Push(Task* task) {
  task->next_ = nullptr;
  (tail_ == nullptr ? head_ : tail_->next_) = task;
  tail_ = task;
  ++size_;
}

Task* TaskQueue::Pop() {
  Task* task = head_;
  if (task == nullptr) return nullptr;
  head_ = task->next_;
  if (head_ == nullptr) tail_ = nullptr;
  --size_;
  return task;
}

absl::StatusOr<std::unique_ptr<WorkerPool>> WorkerPool::Create(const Options& options) {
  if (options.thread_count == 0 || options.queue_max == 0)
    return absl::InvalidArgumentError("worker pool: thread count and queue size must not be zero");
  std::unique_ptr<WorkerPool> pool(new WorkerPool(options));
  pool->threads_.reserve(options.thread_count);
  try {
    for (size_t i = 0; i < options.thread_count; ++i) {
      pool->threads_.emplace_back([raw = pool.get()] { raw->RunTasks(); });
      pthread_setname_np(pool->threads_.back().native_handle(), options.name.substr(0, 15).c_str());
    }
  } catch (const std::system_error& error) {  // the only way std::thread reports a shortage
    return absl::ResourceExhaustedError(
        absl::StrCat("worker pool: thread ", pool->threads_.size() + 1, " of ",
                     options.thread_count, " can't be started: ", error.what()));
  }
  return pool;
}

WorkerPool::~WorkerPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

absl::Status WorkerPool::Post(Task* task) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return ended_;
    if (queue_.size() >= options_.queue_max) return full_;
    queue_.Push(task);
    queued_.store(queue_.size(), std::memory_order_relaxed);
  }
  changed_.NotifyOne();  // without the lock, which the woken thread takes at once
  return absl::OkStatus();
}

bool WorkerPool::Await(Latch& latch, Deadline deadline) { return latch.WaitUntil(deadline); }

void WorkerPool::RunTasks() {
  for (;;) {
    Task* task = nullptr;
    {
      MutexLock lock(mutex_);
      while (queue_.size() == 0 && !stopping_) changed_.Wait(mutex_);
      task = queue_.Pop();
      queued_.store(queue_.size(), std::memory_order_relaxed);
    }
    if (task == nullptr) return;
    task->Run();
  }
}

}  // namespace hps
