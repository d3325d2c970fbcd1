#include "inference/pooling.h"

#include <algorithm>

namespace hps {

void PoolRows(const RowBags& bags, RowPooling pooling, uint64_t sample_count, float* to) {
  const size_t dim = bags.dim;
  for (uint64_t sample = 0; sample < sample_count; ++sample, to += dim) {
    const uint64_t begin = bags.offsets.empty() ? sample * bags.sample_keys
                                                : static_cast<uint64_t>(bags.offsets[sample]);
    const uint64_t end = bags.offsets.empty() ? begin + bags.sample_keys
                                              : static_cast<uint64_t>(bags.offsets[sample + 1]);
    if (begin == end) {
      std::fill(to, to + dim, 0.0F);
      continue;
    }
    const float* row = bags.rows + begin * dim;
    std::copy(row, row + dim, to);
    for (uint64_t i = begin + 1; i < end; ++i) {
      row += dim;
      for (size_t j = 0; j < dim; ++j) to[j] += row[j];
    }
    if (pooling != RowPooling::kMean || end - begin == 1) continue;
    const float share = 1.0F / static_cast<float>(end - begin);
    for (size_t j = 0; j < dim; ++j) to[j] *= share;
  }
}

}  // namespace hps
