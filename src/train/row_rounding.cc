#include "train/row_rounding.h"

#include <algorithm>

namespace hps {

void RoundToNearest(Dtype dtype, std::span<float> values) {
  if (dtype == Dtype::kFloat32) return;
  for (float& value : values) value = RoundedToNearest(value, dtype);
}

void RoundAtRandom(Dtype dtype, uint64_t state, uint32_t updates, std::span<float> row) {
  constexpr size_t kQuad = 4;
  constexpr int kRandomBits = 16;
  if (dtype == Dtype::kFloat32) return;
  for (size_t begin = 0; begin < row.size(); begin += kQuad) {
    uint64_t random = RoundingBits(state, updates, static_cast<uint32_t>(begin / kQuad));
    for (float& value : row.subspan(begin, std::min(kQuad, row.size() - begin))) {
      value = RoundedAtRandom(value, dtype, static_cast<uint32_t>(random & 0xffff));
      random >>= kRandomBits;
    }
  }
}

}  // namespace hps
