// Counts the allocations by operator new in a test program, per thread.
//
// This header replaces operator new of the whole program: include it in exactly one file.
#pragma once

#include <cstdint>

#include "testing/memory/replaced_new.h"

namespace hps {

// Allocations of this thread since it started.
inline thread_local uint64_t allocations_here = 0;

inline void BeforeAllocation() { ++allocations_here; }

}  // namespace hps
