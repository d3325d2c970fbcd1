// Runs background work: a bounded queue of tasks and the threads that run them.
//
// Tasks are intrusive, so that posting does not allocate. All code that waits for tasks waits
// through Executor::Await, so that the executor of a test or simulation can run the tasks itself,
// in an order of its choice and on its own clock.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace hps {

// A unit of work. The poster owns it and must keep it alive until Run has been entered. Run may
// destroy or re-post it.
class Task {
 public:
  virtual ~Task() = default;
  virtual void Run() = 0;

 private:
  friend class TaskQueue;
  Task* next_ = nullptr;
};

// Calls a function. Making one may allocate, running it does not.
class FunctionTask final : public Task {
 public:
  explicit FunctionTask(std::function<void()> function) : function_(std::move(function)) {}
  void Run() override { function_(); }

 private:
  const std::function<void()> function_;
};

// Counts down to zero once. Thread-safe. A latch created with zero is open. Interrupt ends the
// waiting; counting continues.
class Latch {
 public:
  explicit Latch(size_t count = 0) : remaining_(count) {}

  // REQUIRES: no thread counts down or waits.
  void Reset(size_t count);
  void CountDown();
  bool IsOpen() const;
  // Ends all waiting, now and until the next Reset.
  void Interrupt();
  bool IsInterrupted() const;
  // False if the deadline has passed or the latch is interrupted. Use Executor::Await instead if
  // tasks of an executor open the latch.
  bool WaitUntil(Deadline deadline);

 private:
  mutable Mutex mutex_;
  CondVar opened_;
  size_t remaining_ HPS_GUARDED_BY(mutex_);
  bool interrupted_ HPS_GUARDED_BY(mutex_) = false;
};

// Thread-safe.
class Executor {
 public:
  virtual ~Executor() = default;

  // Queues `task`. Errors: RESOURCE_EXHAUSTED, without waiting, if the queue is full (the task was
  // not taken; the caller sheds the work), UNAVAILABLE after shutdown has begun.
  virtual absl::Status Post(Task* task) = 0;

  // Waits until tasks posted here have opened `latch`. False if the deadline has passed or the
  // latch is interrupted.
  virtual bool Await(Latch& latch, Deadline deadline) = 0;

  virtual const Clock& clock() const = 0;

  // The number of tasks that can run at a time.
  virtual size_t thread_count() const = 0;

  // The number of queued tasks, as of a moment ago. A task that could be deferred may use it to
  // yield its thread.
  virtual size_t queued_count() const = 0;
};

// A FIFO queue that does not allocate. Not thread-safe.
class TaskQueue {
 public:
  void Push(Task* task);
  Task* Pop();  // null if empty
  size_t size() const { return size_; }

 private:
  Task* head_ = nullptr;
  Task* tail_ = nullptr;
  size_t size_ = 0;
};

// Threads that run tasks in the order of posting. The destructor runs the queued tasks and joins.
class WorkerPool final : public Executor {
 public:
  struct Options {
    std::string name;  // thread name, as debuggers show it; truncated to 15 bytes
    size_t thread_count = 1;
    size_t queue_max = 1024;
  };

  // Errors: INVALID_ARGUMENT for zero threads or a zero queue, RESOURCE_EXHAUSTED if threads can't
  // be started.
  static absl::StatusOr<std::unique_ptr<WorkerPool>> Create(const Options& options);

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool() override;

  absl::Status Post(Task* task) override;
  bool Await(Latch& latch, Deadline deadline) override;
  const Clock& clock() const override { return RealClock(); }

  size_t thread_count() const override { return threads_.size(); }
  size_t queued_count() const override { return queued_.load(std::memory_order_relaxed); }

 private:
  explicit WorkerPool(const Options& options) : options_(options) {}
  void RunTasks();

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  TaskQueue queue_ HPS_GUARDED_BY(mutex_);
  // Made in advance, so that work is shed correctly even if memory is exhausted.
  const absl::Status full_ = absl::ResourceExhaustedError("worker pool: the queue is full");
  const absl::Status ended_ = absl::UnavailableError("worker pool: shutting down");
  std::atomic<size_t> queued_{0};  // queue_'s size
  bool stopping_ HPS_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace hps
