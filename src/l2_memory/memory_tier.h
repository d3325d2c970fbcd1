// Level 2 in this process: a hash map whose readers never wait.
//
// Every table is an index of cache lines over rows in one block of pages, sized by its budget when
// it is opened (ARCHITECTURE.md, "Level 2"). A fetch is pipelined over groups of keys, so that each
// group pays the memory latency once. It takes no lock and does not allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "hps/config.h"
#include "l2_memory/memory_fetch.h"
#include "l2_memory/page_allocator.h"
#include "tier/host_memory_pinner.h"
#include "tier/lossy_tier.h"

namespace hps {

struct MemoryTierOptions {
  EvictionPolicy eviction = EvictionPolicy::kOldest;
  double evict_from = 0.98;       // in (0, 1]; eviction begins at this share of the rows
  double evict_to = 0.9;          // in (0, evict_from]; eviction ends at this share
  bool huge_pages = true;         // requested; used if the system provides them
  size_t partitions = 0;          // minimum per table; 0 = chosen by the table's size
  FetchFunction fetch = nullptr;  // null = FetchFunctionForMachine(); tests use others
  // Makes the tables readable by devices (tier/direct_rows.h); outlives them. Null: they are not.
  HostMemoryPinner* pinner = nullptr;
};

// A tier whose tables can't block. The only error of its tables: Fetch is UNAVAILABLE if more than
// kFetchesPerTableMax calls are inside one table. REQUIRES: the options are in their ranges.
std::unique_ptr<LossyTier> MakeMemoryTier(const MemoryTierOptions& options);
// The same with other memory, for instance pinned.
std::unique_ptr<LossyTier> MakeMemoryTier(const MemoryTierOptions& options,
                                          std::unique_ptr<PageAllocator> pages);

// The budget with which a table holds `rows` rows without evicting any; used to divide a level's
// budget among tables.
uint64_t MemoryTierBytesFor(uint64_t rows, size_t row_bytes, const MemoryTierOptions& options);

}  // namespace hps
