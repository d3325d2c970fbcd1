// Lists the misses of a query, each key once: see misses.h.
#pragma once

#include <cstdint>

#include "base/limits.h"
#include "gpu/device_memory.cuh"
#include "l1_gpu/kernels/query_task.h"
#include "l1_gpu/misses.h"

namespace hps {

// The counters of one query, in one of the two halves that consecutive calls alternate between.
struct MissCounters {
  uint32_t unique;
  uint32_t duplicates;
  uint32_t duplicate_records;
  uint32_t direct;  // of the first query: misses of the call that level 2 was to be read for
};

__device__ inline MissCounters* CountersOfHalf(const MissBuffers& buffers, uint32_t half) {
  return reinterpret_cast<MissCounters*>(buffers.counters) + half % 2 * kTablesPerCallMax;
}

// Clears the other half for the next call. For all threads of a launch.
__device__ inline void ClearNextCounters(const MissBuffers& buffers, uint32_t generation) {
  auto* const next = reinterpret_cast<uint4*>(CountersOfHalf(buffers, generation + 1));
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < kTablesPerCallMax;
       i += gridDim.x * blockDim.x) {
    next[i] = make_uint4(0, 0, 0, 0);
  }
}

// Claims `key` for `position`. Returns the position that owns the key, which is the first to claim
// it. Keys are compared in the query's input, so that a claim is one word.
__device__ inline uint32_t ClaimMiss(const MissBuffers& buffers, uint32_t generation,
                                     const QueryTask& query, uint64_t key, uint32_t position) {
  unsigned long long* const claims =
      reinterpret_cast<unsigned long long*>(buffers.claims) + 2ull * query.first_key;
  const uint32_t claim_count = 2 * query.key_count;
  const unsigned long long mine = static_cast<unsigned long long>(generation) << 32 | position;
  uint32_t at = __umulhi(static_cast<uint32_t>((key ^ key >> 29) * buffers.claim_multiplier >> 32),
                         claim_count);
  for (;;) {
    unsigned long long seen = LoadRelaxed(reinterpret_cast<const uint64_t*>(claims + at));
    if (seen >> 32 != generation) {
      const unsigned long long previous = atomicCAS(claims + at, seen, mine);
      if (previous == seen) return position;
      seen = previous;
    }
    const uint32_t owner = static_cast<uint32_t>(seen);
    if (static_cast<uint64_t>(query.keys[owner]) == key) return owner;
    at = at + 1 == claim_count ? 0 : at + 1;
  }
}

__device__ inline uint32_t LanesBelow() {
  uint32_t mask;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
  return mask;
}

// Increments a counter by the number of `lanes`, once per warp; returns each lane's index.
__device__ inline uint32_t TakePlaces(uint32_t* counter, uint32_t lanes) {
  uint32_t first = 0;
  const uint32_t leader = __ffs(lanes) - 1;
  if (threadIdx.x % kWarpLanes == leader) first = atomicAdd(counter, __popc(lanes));
  return __shfl_sync(kAllLanes, first, leader) + __popc(lanes & LanesBelow());
}

// One 128-bit access: a vector of four words would be four accesses in any order.
__device__ inline void StoreRecord(void* to, uint64_t low, uint64_t high) {
  asm volatile(
      "{\n\t"
      ".reg .b128 record;\n\t"
      "mov.b128 record, {%1, %2};\n\t"
      "st.relaxed.sys.global.b128 [%0], record;\n\t"
      "}"
      :
      : "l"(to), "l"(low), "l"(high)
      : "memory");
}

// A lane's key, to be listed if it is missing.
struct Miss {
  uint64_t key;
  uint32_t position;  // in the query
  bool missing;
  bool answered;  // the device has written its row, from level 2
};

// Lists the misses of a warp, which belong to query number `number`. For all lanes of a warp, at
// least one of them missing.
static __device__ __noinline__ void RecordMisses(const MissBuffers& buffers, uint32_t generation,
                                                 const QueryTask& query, uint32_t number,
                                                 Miss miss) {
  const auto [key, position, missing, answered] = miss;
  uint32_t owner = position;
  if (missing) owner = ClaimMiss(buffers, generation, query, key, position);
  MissCounters* const counters = CountersOfHalf(buffers, generation) + number;
  const uint32_t first = query.first_key;

  const uint32_t owners = __ballot_sync(kAllLanes, missing && owner == position);
  if (owners != 0) {
    const uint32_t unique = TakePlaces(&counters->unique, owners);
    if (missing && owner == position) {
      const uint64_t check = MissCheck(static_cast<Key>(key), generation);
      StoreRecord(buffers.records + first + unique, key,
                  check << 32 | position | (answered ? kAnsweredOnDevice : 0));
      buffers.unique_of[first + position] = unique;
      buffers.positions[first + unique] = position;
      buffers.keys[first + unique] = static_cast<Key>(key);
    }
  }

  const bool is_duplicate = missing && owner != position;
  const uint32_t duplicates = __ballot_sync(kAllLanes, is_duplicate);
  if (duplicates == 0) return;
  const uint32_t place = TakePlaces(&counters->duplicates, duplicates);
  if (is_duplicate) buffers.duplicates[first + place] = {position, owner};
  const uint32_t same = __match_any_sync(kAllLanes, is_duplicate ? owner : kAllLanes);
  const uint32_t open = __ballot_sync(kAllLanes, is_duplicate && !answered);
  const bool leads = is_duplicate && (same & LanesBelow()) == 0;
  const uint32_t leaders = __ballot_sync(kAllLanes, leads);
  const uint32_t record = TakePlaces(&counters->duplicate_records, leaders);
  if (leads) {
    StoreRecord(buffers.duplicate_records + first + record,
                static_cast<uint64_t>(__popc(same)) << 32 | owner,
                static_cast<uint64_t>(__popc(same & open)) << 32 | generation);
  }
}

}  // namespace hps
