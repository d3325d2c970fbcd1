// Memory for requests and answers, lent in steps and used again.
//
// Small buffers are powers of two, so that one serves many sizes. Above a mebibyte there are four
// steps between a power and the next: what is lent is counted, and a body just above a power must
// not count as twice its size.
//
// The sizes of bodies and rows are not known beforehand, so the pool keeps what comes back, by
// size, and lends it again: after warm-up a request allocates nothing. Limits bounds what is lent,
// and what is kept beside it, so that a burst of large requests does not stay in memory.
//
// Requests may take only a part of the pool: requests that are being read, or wait for their turn,
// must leave memory for the answers to the others. Large requests may take only a part of that
// part, so that probes are read however many large requests wait.
//
// Thread-safe; a lease belongs to one thread at a time. The pool outlives its leases (checked).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace hps::server {

class BufferPool {
 public:
  enum class Use : uint8_t { kRequest, kAnswer };
  struct Limits {
    uint64_t lent_bytes_max = 0;                    // at a time
    uint64_t request_bytes_max = UINT64_MAX;        // ... for requests,
    uint64_t large_request_bytes_max = UINT64_MAX;  // ... of more than kSmallBytes each
    uint64_t kept_bytes_max = 0;                    // of free buffers, for later leases
  };
  static constexpr size_t kSmallBytes = size_t{32} << 10;

  // Exclusive use of one buffer, aligned to 64 bytes; moves, never copies. An empty one holds
  // nothing.
  class Lease {
   public:
    Lease() = default;

    void Release() { memory_.reset(); }
    std::span<std::byte> bytes() const {
      return {memory_.get(), empty() ? 0 : memory_.get_deleter().bytes};
    }
    bool empty() const { return memory_ == nullptr; }

   private:
    friend class BufferPool;
    struct GiveBack {
      BufferPool* pool;
      size_t bytes;
      Use use;
      void operator()(std::byte* memory) const { pool->Return({memory, bytes}, use); }
    };
    Lease(std::byte* memory, const GiveBack& give_back) : memory_(memory, give_back) {}

    std::unique_ptr<std::byte, GiveBack> memory_;
  };

  explicit BufferPool(const Limits& limits) : limits_(limits) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  // At least `bytes`, not zeroed. Errors: RESOURCE_EXHAUSTED, at once; OUT_OF_RANGE for a
  // request for which there could never be room.
  absl::StatusOr<Lease> Acquire(size_t bytes, Use use);

  // What Acquire lends for so many bytes.
  static uint64_t LentFor(size_t bytes) { return ClassBytes(ClassOf(bytes)); }

  uint64_t lent_bytes() const { return lent_bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kSmallestBits = 12;
  static constexpr size_t kPowerCount = 9;  // 4 KiB to 1 MiB
  static constexpr size_t kStepBits = 2;    // ... and so many bits of steps to the next power,
  static constexpr size_t kClassCount = kPowerCount + (size_t{12} << kStepBits);  // up to 4 GiB

  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte[], Free>;

  static size_t ClassBytes(size_t index);
  static size_t ClassOf(size_t bytes);
  Memory TakeKept(size_t index);
  uint64_t RequestBytesMax(size_t size) const {
    return size <= kSmallBytes ? limits_.request_bytes_max : limits_.large_request_bytes_max;
  }
  bool Count(size_t size, Use use);
  void Uncount(size_t size, Use use);
  void Return(std::span<std::byte> bytes, Use use);

  const Limits limits_;
  std::atomic<uint64_t> lent_bytes_ = 0;
  std::atomic<uint64_t> request_bytes_ = 0;  // of them
  Mutex mutex_;
  std::array<std::vector<Memory>, kClassCount> kept_ HPS_GUARDED_BY(mutex_);
  uint64_t kept_bytes_ HPS_GUARDED_BY(mutex_) = 0;
};

}  // namespace hps::server
