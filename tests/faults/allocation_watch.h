// The largest block of memory that the program has asked for: hostile input must not decide how
// much that is. Link allocation_watch.cc into the program; it replaces operator new.
#pragma once

#include <cstddef>

namespace hps {

// Since the last ResetLargestAllocation. Of all threads.
size_t LargestAllocationBytes();
void ResetLargestAllocation();

}  // namespace hps
