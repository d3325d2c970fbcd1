// Allocations that fail as a test plans it: of the whole program, or of hps' own code alone.
//
// Replaces the program's operator new. RocksDB is not safe against a failed allocation, so a plan
// for a store counts only allocations without a frame of librocksdb.so below them.
#pragma once

#include <cstdint>

namespace hps {

// From now on the `nth` allocation fails, counted from 0, and all later ones too where `sticky`.
// Only those of threads that have called CountMyAllocations.
void FailAllocation(uint64_t nth, bool sticky);
// Ends failing. Returns how many allocations would have been counted.
uint64_t StopFailingAllocations();
// Whether this thread's allocations count.
void CountMyAllocations(bool count);
uint64_t FailedAllocations();  // since FailAllocation

}  // namespace hps
