// Makes one allocation by operator new of a test program fail.
//
//   FailAllocation(3);                  // the third one from now, in the threads that may fail
//   ...
//   bool failed = AllocationFailed();   // whether there were that many
//   FailAllocation(0);
//
// This header replaces operator new of the whole program: include it in exactly one file.
// Thread-safe.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <new>
#include <string_view>

#include "testing/memory/replaced_new.h"

namespace hps {

// Whether this thread's allocations may fail: if the test enabled it, and in threads whose name
// begins with this prefix (as WorkerPool names them).
inline thread_local bool may_fail_here = false;
inline std::atomic<const char*> failing_threads{nullptr};

inline bool MayFail() {
  const char* const wanted = failing_threads.load();
  if (may_fail_here || wanted == nullptr) return may_fail_here;
  std::array<char, 16> name{};
  return pthread_getname_np(pthread_self(), name.data(), name.size()) == 0 &&
         std::string_view(name.data()).starts_with(wanted);
}

inline std::atomic<int64_t> allocations_until_failure{0};  // 0 = none fails

inline void FailAllocation(int64_t number) { allocations_until_failure.store(number); }
inline bool AllocationFailed() { return allocations_until_failure.load() <= 0; }

inline void BeforeAllocation() {
  const bool counts = allocations_until_failure.load() > 0 && MayFail();
  if (counts && allocations_until_failure.fetch_sub(1) == 1) throw std::bad_alloc();
}

}  // namespace hps
