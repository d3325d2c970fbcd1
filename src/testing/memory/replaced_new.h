// Operator new of a test program, with a function that is called before every allocation.
//
// Exactly one file of the program includes this, through the header that defines
// hps::BeforeAllocation.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace hps {

inline void BeforeAllocation();  // throws std::bad_alloc to make this allocation fail

inline void* ReplacedAllocate(size_t bytes, size_t alignment) {
  BeforeAllocation();
  void* memory =
      alignment > alignof(std::max_align_t)
          ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
          : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace hps

void* operator new(size_t bytes) { return hps::ReplacedAllocate(bytes, 1); }
void* operator new[](size_t bytes) { return hps::ReplacedAllocate(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return hps::ReplacedAllocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return hps::ReplacedAllocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
