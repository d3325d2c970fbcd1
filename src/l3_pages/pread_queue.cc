#include "l3_pages/pread_queue.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <new>

#include "base/macros.h"
#include "base/mutex.h"
#include "base/out_of_memory.h"

namespace hps {
namespace {

class PreadQueue final : public PageQueue {
 public:
  explicit PreadQueue(Executor& workers) : workers_(workers) {
    for (Read& read : reads_) read.queue = this;
  }
  PreadQueue(const PreadQueue&) = delete;
  PreadQueue& operator=(const PreadQueue&) = delete;
  ~PreadQueue() override;

  void Begin(const PageRead& read) override;
  absl::StatusOr<size_t> Await(std::span<EndedPageRead> ended, Deadline deadline) override;
  size_t in_flight() const override { return in_flight_; }

 private:
  struct Read final : Task {
    void Run() override;

    PreadQueue* queue = nullptr;
    PageRead read;
  };

  void End(size_t slot, int result);

  Executor& workers_;
  std::array<Read, kPageSlotsMax> reads_;  // by slot
  size_t in_flight_ = 0;                   // those in ended_ included
  Mutex mutex_;
  CondVar changed_;
  std::array<EndedPageRead, kPageSlotsMax> ended_ HPS_GUARDED_BY(mutex_);
  size_t ended_count_ HPS_GUARDED_BY(mutex_) = 0;
};

void PreadQueue::Read::Run() {
  ssize_t result = 0;
  do {
    result = ::pread(read.descriptor, read.into.data(), read.into.size(),
                     static_cast<off_t>(read.offset));
  } while (result < 0 && errno == EINTR);
  queue->End(read.slot, result < 0 ? -errno : static_cast<int>(result));
}

PreadQueue::~PreadQueue() {
  MutexLock lock(mutex_);
  while (ended_count_ < in_flight_) changed_.Wait(mutex_);
}

// Notifies under the lock: the queue may be destroyed as soon as it is released.
void PreadQueue::End(size_t slot, int result) {
  MutexLock lock(mutex_);
  ended_[ended_count_++] = {slot, result};
  changed_.NotifyOne();
}

void PreadQueue::Begin(const PageRead& read) {
  HPS_CHECK(read.slot < kPageSlotsMax);
  reads_[read.slot].read = read;
  ++in_flight_;
  if (!workers_.Post(&reads_[read.slot]).ok()) End(read.slot, -EAGAIN);
}

absl::StatusOr<size_t> PreadQueue::Await(std::span<EndedPageRead> ended, Deadline deadline) {
  if (in_flight_ == 0) return 0;
  MutexLock lock(mutex_);
  while (ended_count_ == 0) {
    if (deadline == kNoDeadline) {
      changed_.Wait(mutex_);
    } else if (!changed_.WaitUntil(mutex_, deadline) && ended_count_ == 0) {
      return absl::DeadlineExceededError("page reads: deadline exceeded");
    }
  }
  const size_t count = std::min(ended.size(), ended_count_);
  std::copy_n(ended_.begin(), count, ended.begin());
  std::copy(ended_.begin() + static_cast<std::ptrdiff_t>(count),
            ended_.begin() + static_cast<std::ptrdiff_t>(ended_count_), ended_.begin());
  ended_count_ -= count;
  in_flight_ -= count;
  return count;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageQueue>> MakePreadQueue(Executor& workers) {
  auto queue = std::unique_ptr<PageQueue>(new (std::nothrow) PreadQueue(workers));
  if (queue == nullptr) return OutOfMemory("page reads: out of memory");
  return queue;
}

}  // namespace hps
