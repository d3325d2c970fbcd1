#include "l3_pages/page_reader.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/out_of_memory.h"
#include "l3_pages/pread_queue.h"
#include "l3_pages/uring_queue.h"

namespace hps {
namespace {

// How often it is looked whether the reads that earlier fetches left behind have ended.
constexpr Duration kSettlePoll = std::chrono::milliseconds(10);

// True if no read of an earlier fetch is in flight. Does not wait.
bool IsSettled(PageQueue& queue) {
  std::array<EndedPageRead, kPageSlotsMax> ended;
  while (queue.in_flight() > 0) {
    const absl::StatusOr<size_t> count = queue.Await(ended, RealClock().Now());
    if (!count.ok()) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PageReader>> PageReader::Create(const Options& options) {
  std::unique_ptr<PageReader> reader(new PageReader(options));
  {
    MutexLock lock(reader->mutex_);
    reader->free_.reserve(kFetchScratchesMax);
  }
  if (options.cache_bytes > 0) {
    HPS_ASSIGN_OR_RETURN(reader->cache_, PageCache::Create(options.cache_bytes));
  }
  if (options.use_uring) {
    const absl::Status refused = MakeUringQueue().status();
    if (refused.ok()) return reader;
    LogInfo(absl::StrCat(refused.ToString(), "; page files are read by ", options.thread_count,
                         " threads instead"));
  }
  MutexLock lock(reader->mutex_);
  HPS_RETURN_IF_ERROR(reader->StartWorkers());
  return reader;
}

absl::Status PageReader::StartWorkers() {
  HPS_ASSIGN_OR_RETURN(workers_,
                       WorkerPool::Create({.name = "page-read",
                                           .thread_count = options_.thread_count,
                                           .queue_max = kFetchScratchesMax * kPageSlotsMax}));
  return absl::OkStatus();
}

// The system may refuse io_uring later than when the reader was made.
absl::StatusOr<std::unique_ptr<PageQueue>> PageReader::MakeQueue() {
  MutexLock lock(mutex_);
  if (workers_ == nullptr) {
    absl::StatusOr<std::unique_ptr<PageQueue>> queue = MakeUringQueue();
    if (!absl::IsUnimplemented(queue.status())) return queue;
    LogWarning(absl::StrCat(queue.status().ToString(), "; page files are read by ",
                            options_.thread_count, " threads from now on"));
    HPS_RETURN_IF_ERROR(StartWorkers());
  }
  return MakePreadQueue(*workers_);
}

std::unique_ptr<PageSlots> PageReader::TakeFree() {
  for (auto slots = free_.rbegin(); slots != free_.rend(); ++slots) {
    if (!IsSettled(*(*slots)->queue)) continue;
    std::unique_ptr<PageSlots> taken = std::move(*slots);
    free_.erase(std::next(slots).base());
    return taken;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<PageSlots>> PageReader::MakeSlots() {
  std::unique_ptr<PageSlots> slots(new (std::nothrow) PageSlots);
  if (slots == nullptr) return OutOfMemory("page reads: out of memory");
  slots->bytes = AllocateAligned(kPageSlotsBytes);
  if (slots->bytes == nullptr) return OutOfMemory("page reads: out of memory for pages");
  HPS_ASSIGN_OR_RETURN(slots->queue, MakeQueue());
  return slots;
}

absl::StatusOr<PageReader::Lease> PageReader::Acquire(Deadline deadline) {
  {
    MutexLock lock(mutex_);
    std::unique_ptr<PageSlots> taken = TakeFree();
    while (taken == nullptr && leased_ + free_.size() >= kFetchScratchesMax) {
      const TimePoint now = RealClock().Now();
      if (now >= deadline) {
        return absl::DeadlineExceededError(absl::StrCat("page files: fetch: all ",
                                                        kFetchScratchesMax,
                                                        " queues were in use until the deadline"));
      }
      returned_.WaitUntil(mutex_, std::min(deadline, now + kSettlePoll));
      taken = TakeFree();
    }
    ++leased_;  // without `taken`: reserves a place in free_
    if (taken != nullptr) return Lease(*this, std::move(taken));
  }
  absl::StatusOr<std::unique_ptr<PageSlots>> slots = MakeSlots();
  if (slots.ok()) return Lease(*this, *std::move(slots));
  --leased_;
  return slots.status();
}

void PageReader::Return(std::unique_ptr<PageSlots> slots) {
  MutexLock lock(mutex_);
  --leased_;
  free_.push_back(std::move(slots));
  returned_.NotifyOne();
}

size_t PageReader::ShareOfReads() const {
  const size_t leased = std::max<size_t>(leased_.load(std::memory_order_relaxed), 1);
  return std::clamp<size_t>(options_.reads_max / leased, 1, kPageSlotsMax);
}

}  // namespace hps
