#include "tests/faults/allocation_watch.h"

#include <atomic>
#include <cstdlib>

namespace hps {
namespace {

std::atomic<size_t> largest_bytes{0};

void* Allocate(size_t bytes) {
  size_t largest = largest_bytes.load(std::memory_order_relaxed);
  while (bytes > largest && !largest_bytes.compare_exchange_weak(largest, bytes)) {
  }
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();  // a test has no use for going on
  return memory;
}

}  // namespace

size_t LargestAllocationBytes() { return largest_bytes.load(std::memory_order_relaxed); }
void ResetLargestAllocation() { largest_bytes.store(0, std::memory_order_relaxed); }

}  // namespace hps

void* operator new(size_t bytes) { return hps::Allocate(bytes); }
void* operator new[](size_t bytes) { return hps::Allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
