// Where background work runs: a bounded queue of tasks and the threads that run them.
//
// Work is posted as an intrusive Task, so that posting allocates nothing. Everything that waits for
// tasks waits through Executor::Await, so that a test's or a simulation's executor can run the
// tasks itself, in an order of its choosing, on a clock of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace hps {

// A unit of work. It is owned by whoever posts it and must live until Run has been entered; Run
// may destroy or re-post it.
class Task {
 public:
  virtual ~Task() = default;
  virtual void Run() = 0;

 private:
  friend class TaskQueue;
  Task* next_ = nullptr;
};

// Counts down to zero once. Thread-safe. A latch of zero is open. Whoever waits for it can be told
// to stop: the count goes on all the same.
class Latch {
 public:
  explicit Latch(size_t count = 0) : remaining_(count) {}

  // Only while nobody counts down or waits.
  void Reset(size_t count);
  void CountDown();
  bool IsOpen() const;
  // Ends all waiting, now and until the next Reset.
  void Interrupt();
  bool IsInterrupted() const;
  // False when the deadline has passed first, or it is interrupted. Use Executor::Await instead
  // wherever tasks of an executor open the latch.
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

  // Queues `task`. Errors: RESOURCE_EXHAUSTED at once when the queue is full (the task was not
  // taken: the caller sheds it), UNAVAILABLE after shutdown has begun.
  virtual absl::Status Post(Task* task) = 0;

  // Waits until `latch`, which tasks posted here open, is open. False when the deadline has passed
  // or the latch is interrupted.
  virtual bool Await(Latch& latch, Deadline deadline) = 0;

  virtual const Clock& clock() const = 0;

  // Tasks that it can run at a time.
  virtual size_t thread_count() const = 0;

  // Tasks that wait for a thread, as of a moment ago: for who keeps a thread without need.
  virtual size_t queued_count() const = 0;
};

// First in, first out, without allocation. Not thread-safe.
class TaskQueue {
 public:
  void Push(Task* task);
  Task* Pop();  // null when empty
  size_t size() const { return size_; }

 private:
  Task* head_ = nullptr;
  Task* tail_ = nullptr;
  size_t size_ = 0;
};

// Threads that run tasks in the order of posting. The destructor runs what is queued and joins.
class WorkerPool final : public Executor {
 public:
  struct Options {
    std::string name;  // of the threads, as debuggers show it; 15 bytes are kept
    size_t thread_count = 1;
    size_t queue_max = 1024;
  };

  // Errors: INVALID_ARGUMENT for zero threads or a zero queue, RESOURCE_EXHAUSTED when threads
  // can't be started.
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
  // Made beforehand: where there is no memory, work is shed all the same.
  const absl::Status full_ = absl::ResourceExhaustedError("worker pool: the queue is full");
  const absl::Status ended_ = absl::UnavailableError("worker pool: shutting down");
  std::atomic<size_t> queued_{0};  // queue_'s size
  bool stopping_ HPS_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace hps
