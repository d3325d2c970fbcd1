// Level 2 in this process: a hash map whose readers never wait.
//
// Every table is an index of cache lines over rows that lie in one block of pages, sized by its
// budget when it is opened (ARCHITECTURE.md, "Level 2"). A fetch is pipelined over groups of keys,
// so that the memory's latency is paid once per group; it takes no lock and allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hps/config.h"
#include "l2_memory/memory_fetch.h"
#include "l2_memory/page_allocator.h"
#include "tier/lossy_tier.h"

namespace hps {

struct MemoryTierOptions {
  EvictionPolicy eviction = EvictionPolicy::kOldest;
  double overflow_margin = 0.98;   // in (0, 1]; eviction begins when the rows are this full
  double resolution_target = 0.9;  // in (0, overflow_margin]; ... and goes down to here
  bool huge_pages = true;          // asked for; used where the system gives them
  size_t partitions = 0;           // at least so many per table; 0 = as its size asks for
  FetchFunction fetch = nullptr;   // null = FetchFunctionForMachine(); another one in tests
};

// A tier whose tables can't block. Errors of its tables: Fetch is UNAVAILABLE when more than
// kFetchesPerTableMax calls are inside one table; nothing else ever fails.
// REQUIRES: the options are in their ranges.
std::unique_ptr<LossyTier> MakeMemoryTier(const MemoryTierOptions& options);
// With memory of another kind, for instance pinned.
std::unique_ptr<LossyTier> MakeMemoryTier(const MemoryTierOptions& options,
                                          std::unique_ptr<PageAllocator> pages);

// The budget with which a table holds `rows` rows without evicting any, for dividing a level's
// budget over tables.
uint64_t MemoryTierBytesFor(uint64_t rows, size_t row_bytes, const MemoryTierOptions& options);

}  // namespace hps
