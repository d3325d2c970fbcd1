#include "tests/faults/allocation_failure.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace hps {
namespace {

constexpr int kFramesMax = 64;

std::atomic<bool> armed{false};
std::atomic<bool> sticky_plan{false};
std::atomic<uint64_t> fails_at{0};
std::atomic<uint64_t> counted{0};
std::atomic<uint64_t> failed{0};
thread_local bool counts = false;

bool IsOfRocks(void* frame) {
  Dl_info info;
  return dladdr(frame, &info) != 0 && info.dli_fname != nullptr &&
         std::strstr(info.dli_fname, "librocksdb") != nullptr;
}

bool IsUnderRocks() {
  void* frames[kFramesMax];
  const int count = backtrace(frames, kFramesMax);
  for (int i = 0; i < count; ++i) {
    if (IsOfRocks(frames[i])) return true;
  }
  return false;
}

bool Fails() {
  if (!counts || !armed.load()) return false;
  counts = false;  // what is asked here may allocate
  const bool under_rocks = IsUnderRocks();
  counts = true;
  if (under_rocks) return false;
  const uint64_t number = counted.fetch_add(1);
  const bool fails = sticky_plan ? number >= fails_at : number == fails_at;
  failed += fails ? 1 : 0;
  return fails;
}

void* Allocate(size_t bytes) {
  void* const memory = Fails() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* AllocateOrNull(size_t bytes) noexcept {
  return Fails() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

void FailAllocation(uint64_t nth, bool sticky) {
  void* frame = nullptr;
  static_cast<void>(backtrace(&frame, 1));  // its first call loads a library
  fails_at = nth;
  sticky_plan = sticky;
  counted = 0;
  failed = 0;
  armed = true;
}

uint64_t StopFailingAllocations() {
  armed = false;
  return counted;
}

void CountMyAllocations(bool count) { counts = count; }

uint64_t FailedAllocations() { return failed; }

}  // namespace hps

// Not inlined: the compiler would see memory of malloc given to delete.
[[gnu::noinline]] void* operator new(size_t bytes) { return hps::Allocate(bytes); }
[[gnu::noinline]] void* operator new[](size_t bytes) { return hps::Allocate(bytes); }
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return hps::AllocateOrNull(bytes);
}
[[gnu::noinline]] void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return hps::AllocateOrNull(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
