// Counts what a test program allocates by operator new, thread by thread.
//
// This header replaces operator new of the whole program: exactly one file of it includes this.
#pragma once

#include <cstdint>

#include "testing/memory/replaced_new.h"

namespace hps {

// By this thread, since it began.
inline thread_local uint64_t allocations_here = 0;

inline void BeforeAllocation() { ++allocations_here; }

}  // namespace hps
