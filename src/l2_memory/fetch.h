// The read path of level 2: many keys at a time, so that their cache misses overlap.
//
// Groups of keys go through three phases, hash, probe and copy, and each phase prefetches what the
// next one will touch. Bound: the plain gather of the same rows by known address; on top of it a
// key costs one line of the index, seldom two.
#pragma once

#include <cstddef>
#include <span>

#include "l2_memory/partition.h"
#include "tier/fetch.h"

namespace hps {

struct FetchSource {
  std::span<PartitionView> partitions;  // readers write stamps
  const PartitionShape* shape = nullptr;
};

struct FetchRange {
  size_t begin = 0;
  size_t end = 0;
};

// Answers the keys of `range` and adds to `counts`. REQUIRES: an epoch guard of the table is held;
// the batch's sizes agree.
void FetchKeys(const FetchSource& source, const FetchBatch& batch, FetchRange range,
               FetchCounts& counts);

}  // namespace hps
