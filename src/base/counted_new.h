// Counts what a test program allocates by operator new, thread by thread.
//
// This header replaces operator new of the whole program: exactly one file of it includes this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace hps {

// By this thread, since it began.
inline thread_local uint64_t allocations_here = 0;

inline void* CountedAllocate(size_t bytes, size_t alignment) {
  ++allocations_here;
  void* memory =
      alignment > alignof(std::max_align_t)
          ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
          : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace hps

void* operator new(size_t bytes) { return hps::CountedAllocate(bytes, 1); }
void* operator new[](size_t bytes) { return hps::CountedAllocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return hps::CountedAllocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return hps::CountedAllocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
