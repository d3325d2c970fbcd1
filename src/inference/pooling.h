// Sums and means of rows over bags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "hps/model_network.h"

namespace hps {

// The bags of consecutive samples in [n, dim] rows: `offsets` ([samples + 1]), or `sample_keys`
// rows each where it is empty.
struct RowBags {
  const float* rows = nullptr;
  uint32_t dim = 0;
  uint64_t sample_keys = 1;
  std::span<const int64_t> offsets{};
};

// Writes [sample_count, dim]; a bag without rows gives zeros. REQUIRES: `pooling` is kSum or kMean.
void PoolRows(const RowBags& bags, RowPooling pooling, uint64_t sample_count, float* to);

}  // namespace hps
