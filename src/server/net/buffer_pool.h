// Memory for requests and answers, lent in powers of two and used again.
//
// Bodies and rows come in sizes that nobody knows beforehand, so the pool keeps what comes back, by
// size, and lends it again: after warm-up a request allocates nothing. What is lent is bounded by
// the server's bytes in flight, what is kept beside by a share of that, so that a burst of large
// requests does not stay in memory.
//
// Thread-safe; a lease belongs to one thread at a time. The pool outlives its leases (checked).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace hps::server {

class BufferPool {
 public:
  // Exclusive use of one buffer, aligned to 64 bytes; moves, never copies. An empty one holds
  // nothing.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)),
          bytes_(std::exchange(other.bytes_, std::span<std::byte>())) {}
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { Release(); }

    void Release();
    std::span<std::byte> bytes() const { return bytes_; }
    bool empty() const { return bytes_.empty(); }

   private:
    friend class BufferPool;
    Lease(BufferPool* pool, std::span<std::byte> bytes) : pool_(pool), bytes_(bytes) {}

    BufferPool* pool_ = nullptr;
    std::span<std::byte> bytes_;
  };

  // Lends at most `lent_bytes_max` at a time, and keeps at most `kept_bytes_max` for later.
  BufferPool(uint64_t lent_bytes_max, uint64_t kept_bytes_max)
      : lent_bytes_max_(lent_bytes_max), kept_bytes_max_(kept_bytes_max) {}
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  ~BufferPool();

  // At least `bytes`, not zeroed. Errors: RESOURCE_EXHAUSTED, at once.
  absl::StatusOr<Lease> Acquire(size_t bytes);

  // What Acquire lends for so many bytes.
  static uint64_t LentFor(size_t bytes) { return uint64_t{1} << (kSmallestBits + ClassOf(bytes)); }

  uint64_t lent_bytes() const { return lent_bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kSmallestBits = 12;
  static constexpr size_t kClassCount = 20;  // 4 KiB to 2 GiB

  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Memory = std::unique_ptr<std::byte[], Free>;

  static constexpr size_t ClassBytes(size_t index) { return size_t{1} << (kSmallestBits + index); }
  static size_t ClassOf(size_t bytes);
  Memory TakeKept(size_t index);
  void Return(std::span<std::byte> bytes);

  const uint64_t lent_bytes_max_;
  const uint64_t kept_bytes_max_;
  std::atomic<uint64_t> lent_bytes_ = 0;
  Mutex mutex_;
  std::array<std::vector<Memory>, kClassCount> kept_ HPS_GUARDED_BY(mutex_);
  uint64_t kept_bytes_ HPS_GUARDED_BY(mutex_) = 0;
};

}  // namespace hps::server
