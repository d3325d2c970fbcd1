// Reads pages of all page files of a store: the queues, their memory, and the bound on how many
// reads are in flight.
//
// A fetch leases a queue. Reads that it leaves behind at its deadline stay in the queue, which is
// leased again when they have ended. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/limits.h"
#include "base/mutex.h"
#include "l3_pages/page_cache.h"
#include "l3_pages/page_file_handle.h"
#include "l3_pages/page_format.h"
#include "l3_pages/page_queue.h"

namespace hps {

// Memory of a queue's slots: 64 pages of 8 KiB, or 16 of the largest.
inline constexpr size_t kPageSlotsBytes = size_t{512} << 10;

// A queue, and the memory that a fetch needs.
struct PageSlots {
  AlignedBytes bytes;                             // [kPageSlotsBytes]
  std::array<uint32_t, kFetchTaskKeysMax> order;  // positions by ascending key
  std::unique_ptr<PageQueue> queue;               // destroyed before `bytes`
};

class PageReader {
 public:
  struct Options {
    // Reads in flight of all fetches together; each has at least one.
    size_t reads_max = 256;
    // False: threads that call pread, also where there is io_uring.
    bool use_uring = true;
    // Threads, where there is no io_uring.
    size_t thread_count = 32;
    // Memory for pages that were read (page_cache.h). 0: none. Tables should then be opened with
    // direct reading, or the system caches the same pages again.
    uint64_t cache_bytes = 0;
  };

  class Lease {
   public:
    Lease(PageReader& reader, std::unique_ptr<PageSlots> slots)
        : reader_(&reader), slots_(std::move(slots)) {}
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (slots_ != nullptr) reader_->Return(std::move(slots_));
    }
    PageQueue& queue() const { return *slots_->queue; }
    std::span<std::byte> bytes() const { return {slots_->bytes.get(), kPageSlotsBytes}; }
    std::span<uint32_t> order() const { return slots_->order; }
    // Reads that the fetch may have in flight now: its share of Options::reads_max.
    size_t reads_max() const { return reader_->ShareOfReads(); }

   private:
    PageReader* reader_;
    std::unique_ptr<PageSlots> slots_;
  };

  // Uses io_uring, or threads if the system refuses it; logs the reason. Errors:
  // RESOURCE_EXHAUSTED (threads can't be started; there is no memory for the cache).
  static absl::StatusOr<std::unique_ptr<PageReader>> Create(const Options& options);
  PageReader(const PageReader&) = delete;
  PageReader& operator=(const PageReader&) = delete;
  // REQUIRES: all leases were returned. Waits for reads that were left behind.
  ~PageReader() = default;

  // Waits while all kFetchScratchesMax queues are leased, or have reads that hang. Errors:
  // RESOURCE_EXHAUSTED (memory, descriptors), DEADLINE_EXCEEDED.
  absl::StatusOr<Lease> Acquire(Deadline deadline);

  bool uses_uring() const {
    MutexLock lock(mutex_);
    return workers_ == nullptr;
  }
  // Null if there is none.
  PageCache* cache() const { return cache_.get(); }

 private:
  explicit PageReader(const Options& options) : options_(options) {}
  // Null if all free ones have reads in flight.
  std::unique_ptr<PageSlots> TakeFree() HPS_REQUIRES(mutex_);
  absl::StatusOr<std::unique_ptr<PageSlots>> MakeSlots();
  absl::StatusOr<std::unique_ptr<PageQueue>> MakeQueue();
  absl::Status StartWorkers() HPS_REQUIRES(mutex_);
  void Return(std::unique_ptr<PageSlots> slots);
  size_t ShareOfReads() const;

  const Options options_;
  std::unique_ptr<PageCache> cache_;
  std::atomic<size_t> leased_{0};
  mutable Mutex mutex_;
  CondVar returned_;
  std::unique_ptr<WorkerPool> workers_ HPS_GUARDED_BY(mutex_);  // null: io_uring
  std::vector<std::unique_ptr<PageSlots>> free_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
