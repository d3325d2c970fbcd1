#include "server/grpc_codec/response_buffer.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace hps::server {

constexpr size_t kAlignment = 64;

ResponseBuffer::ResponseBuffer(size_t capacity)
    : capacity_(capacity),
      memory_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, capacity))) {}

void ResponseBuffer::DropReference() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::shared_ptr<ResponseBufferPool> pool = std::move(pool_);
  pool->Take(std::unique_ptr<ResponseBuffer>(this));
}

size_t ResponseBufferPool::ClassOf(size_t bytes) {
  return static_cast<size_t>(std::bit_width((std::max(bytes, kSmallest) - 1) / kSmallest));
}

ResponseBuffer* ResponseBufferPool::Lend(size_t bytes) {
  const size_t size_class = ClassOf(bytes);
  if (size_class >= kClassCount) return nullptr;
  std::unique_ptr<ResponseBuffer> buffer;
  {
    MutexLock lock(mutex_);
    auto& free = free_[size_class];
    if (!free.empty()) {
      buffer = std::move(free.back());
      free.pop_back();
      kept_bytes_ -= buffer->capacity();
    }
  }
  if (buffer == nullptr) buffer = std::make_unique<ResponseBuffer>(kSmallest << size_class);
  if (buffer->data() == nullptr) return nullptr;
  buffer->references_.store(1, std::memory_order_relaxed);
  buffer->pool_ = shared_from_this();
  return buffer.release();
}

void ResponseBufferPool::Take(std::unique_ptr<ResponseBuffer> buffer) {
  MutexLock lock(mutex_);
  if (kept_bytes_ + buffer->capacity() > kept_bytes_max_) return;
  const size_t capacity = buffer->capacity();
  try {
    free_[ClassOf(capacity)].push_back(std::move(buffer));
    kept_bytes_ += capacity;
  } catch (const std::bad_alloc&) {
    // No room in the list: it is freed.
  }
}

size_t ResponseBufferPool::kept_bytes() const {
  MutexLock lock(mutex_);
  return kept_bytes_;
}

}  // namespace hps::server
