// Buffers for answers that live until the network has taken them.
//
// The look-up writes rows straight into a buffer; the library that sends them holds references to
// it and drops them when it likes, on any thread, maybe after the server has gone: so a buffer
// counts its references, and keeps its pool alive. Free buffers are kept, up to a maximum.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/mutex.h"

namespace hps::server {

class ResponseBufferPool;

class ResponseBuffer {
 public:
  explicit ResponseBuffer(size_t capacity);
  ResponseBuffer(const ResponseBuffer&) = delete;
  ResponseBuffer& operator=(const ResponseBuffer&) = delete;

  std::byte* data() { return memory_.get(); }  // aligned to 64 bytes; null: there was no memory
  size_t capacity() const { return capacity_; }

  void AddReferences(size_t count) { references_.fetch_add(count, std::memory_order_relaxed); }
  // The last one gives the buffer back to its pool.
  void DropReference();

 private:
  friend class ResponseBufferPool;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  const size_t capacity_;
  const std::unique_ptr<std::byte[], Free> memory_;
  std::atomic<size_t> references_{0};
  std::shared_ptr<ResponseBufferPool> pool_;  // while it is lent
};

class ResponseBufferPool : public std::enable_shared_from_this<ResponseBufferPool> {
 public:
  explicit ResponseBufferPool(size_t kept_bytes_max) : kept_bytes_max_(kept_bytes_max) {}

  // A buffer of at least so many bytes with one reference. Null when there is no memory.
  // REQUIRES: the pool is owned by a shared_ptr.
  ResponseBuffer* Lend(size_t bytes);

  // The capacity of the buffer that Lend gives for so many bytes.
  static uint64_t LentFor(size_t bytes) { return uint64_t{kSmallest} << ClassOf(bytes); }

  size_t kept_bytes() const;

 private:
  friend class ResponseBuffer;
  // Capacities are powers of two from 4 KiB on.
  static constexpr size_t kSmallest = 4096;
  static constexpr size_t kClassCount = 28;
  static size_t ClassOf(size_t bytes);

  void Take(std::unique_ptr<ResponseBuffer> buffer);

  const size_t kept_bytes_max_;
  mutable Mutex mutex_;
  std::array<std::vector<std::unique_ptr<ResponseBuffer>>, kClassCount> free_
      HPS_GUARDED_BY(mutex_);
  size_t kept_bytes_ HPS_GUARDED_BY(mutex_) = 0;
};

}  // namespace hps::server
