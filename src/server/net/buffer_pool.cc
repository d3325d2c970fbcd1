#include "server/net/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/poison.h"

namespace hps::server {
namespace {

absl::Status Refused() {
  return absl::ResourceExhaustedError(
      "the server is at its capacity (bytes in flight); try again later");
}

}  // namespace

void BufferPool::Free::operator()(std::byte* memory) const { std::free(memory); }

BufferPool::~BufferPool() {
  HPS_CHECK(lent_bytes() == 0);
  MutexLock lock(mutex_);
  for (size_t index = 0; index < kClassCount; ++index) {
    for (const Memory& memory : kept_[index]) UnpoisonMemory({memory.get(), ClassBytes(index)});
  }
}

size_t BufferPool::ClassOf(size_t bytes) {
  const size_t last = std::max<size_t>(bytes, 1) - 1;  // the last byte that is to be there
  const size_t bits = std::bit_width(last);
  if (bits < kSmallestBits + kPowerCount) return std::max(bits, kSmallestBits) - kSmallestBits;
  const size_t power = bits - 1 - (kSmallestBits + kPowerCount - 1);  // from the largest on
  const size_t step = last >> (bits - 1 - kStepBits) & ((size_t{1} << kStepBits) - 1);
  return kPowerCount + (power << kStepBits) + step;
}

size_t BufferPool::ClassBytes(size_t index) {
  if (index < kPowerCount) return size_t{1} << (kSmallestBits + index);
  const size_t steps = index - kPowerCount + 1;  // above the largest power
  const size_t power = kSmallestBits + kPowerCount - 1 + (steps >> kStepBits);
  const size_t step = steps & ((size_t{1} << kStepBits) - 1);
  return (size_t{1} << power) + (step << (power - kStepBits));
}

absl::StatusOr<BufferPool::Lease> BufferPool::Acquire(size_t bytes, Use use) {
  const size_t index = ClassOf(bytes);
  if (index >= kClassCount) return Refused();
  const size_t size = ClassBytes(index);
  if (use == Use::kRequest && size > RequestBytesMax(size)) {
    return absl::OutOfRangeError(absl::StrCat("the request takes ", size,
                                              " bytes; [server] bytes_in_flight_max is ",
                                              limits_.large_request_bytes_max));
  }
  if (!Count(size, use)) return Refused();
  Memory memory = TakeKept(index);
  if (memory == nullptr) memory.reset(static_cast<std::byte*>(std::aligned_alloc(64, size)));
  if (memory != nullptr) return Lease(memory.release(), {this, size, use});
  Uncount(size, use);
  return Refused();
}

// False: it is too much, and not counted.
bool BufferPool::Count(size_t size, Use use) {
  const auto take = [size](std::atomic<uint64_t>& taken, uint64_t max) {
    // Never more than there is, not even for a moment: another could be refused then.
    uint64_t seen = taken.load(std::memory_order_relaxed);
    do {
      if (seen > max || size > max - seen) return false;
    } while (!taken.compare_exchange_weak(seen, seen + size, std::memory_order_relaxed));
    return true;
  };
  if (use == Use::kRequest && !take(request_bytes_, RequestBytesMax(size))) return false;
  if (take(lent_bytes_, limits_.lent_bytes_max)) return true;
  if (use == Use::kRequest) request_bytes_.fetch_sub(size, std::memory_order_relaxed);
  return false;
}

void BufferPool::Uncount(size_t size, Use use) {
  lent_bytes_.fetch_sub(size, std::memory_order_relaxed);
  if (use == Use::kRequest) request_bytes_.fetch_sub(size, std::memory_order_relaxed);
}

BufferPool::Memory BufferPool::TakeKept(size_t index) {
  MutexLock lock(mutex_);
  std::vector<Memory>& kept = kept_[index];
  if (kept.empty()) return nullptr;
  Memory memory = std::move(kept.back());
  kept.pop_back();
  kept_bytes_ -= ClassBytes(index);
  UnpoisonMemory({memory.get(), ClassBytes(index)});
  return memory;
}

void BufferPool::Return(std::span<std::byte> bytes, Use use) {
  Memory memory(bytes.data());  // freed outside the lock when it is not kept
  Uncount(bytes.size(), use);
  MutexLock lock(mutex_);
  if (kept_bytes_ + bytes.size() > limits_.kept_bytes_max) return;
  try {
    kept_[ClassOf(bytes.size())].push_back(std::move(memory));
  } catch (const std::bad_alloc&) {
    return;  // no room in the list: the buffer is freed
  }
  kept_bytes_ += bytes.size();
  PoisonMemory(bytes);  // until it is lent again
}

}  // namespace hps::server
