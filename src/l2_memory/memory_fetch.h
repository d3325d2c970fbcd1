// The read path of level 2. It processes many keys at a time, so that their cache misses overlap.
//
// Groups of keys pass through the steps hash, first line, second line, copy. Each step prefetches
// what the next one will touch. The steps of different groups are interleaved key by key.
//
// Bound: the plain gather of the same rows by known address. In addition a key costs one line of
// the index, rarely two, on a page of its own: in a virtual machine whose host maps pages of 4 KiB,
// the page walk costs as much as the line.
#pragma once

#include <cstddef>
#include <cstdint>

#include "l2_memory/partition.h"
#include "tier/fetch_batch.h"

namespace hps {

// The arrays of a table. Each begins with the first partition's part; the other partitions follow
// without a gap: partition p's lines begin at lines + p * shape->line_count, and so on.
struct FetchSource {
  IndexLine* lines = nullptr;  // readers write the stamps
  const std::byte* rows = nullptr;
  const std::atomic<Version>* versions = nullptr;
  const std::atomic<uint8_t>* ticks = nullptr;  // one per partition
  uint64_t partition_count = 0;
  const PartitionShape* shape = nullptr;
};

struct FetchRange {
  size_t begin = 0;
  size_t end = 0;
};

// Answers the keys of `range` and adds to `counts`. With `streaming`, aligned rows are stored past
// the caches. REQUIRES: an epoch guard of the table is held; the batch's sizes agree.
using FetchFunction = void (*)(const FetchSource& source, const FetchBatch& batch, FetchRange range,
                               bool streaming, FetchCounts& counts);

// The fastest implementation for this machine.
FetchFunction FetchFunctionForMachine();

// The portable implementation.
void FetchPortable(const FetchSource& source, const FetchBatch& batch, FetchRange range,
                   bool streaming, FetchCounts& counts);

// For x86 machines with AVX2, and with AVX-512 (F, BW, VL, DQ); null if the machine can't run it or
// the compiler can't build it.
FetchFunction FetchAvx2();
FetchFunction FetchAvx512();

}  // namespace hps
