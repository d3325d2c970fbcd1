#include "network/plan/plan.h"

namespace hps {

int64_t PlanView::ElementCount() const {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(count, dim, &count)) return std::numeric_limits<int64_t>::max();
  }
  return count;
}

bool PlanView::IsCompact() const {
  if (gather_dim >= 0) return false;
  int64_t expected = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (strides[i] != expected && (dims[i] != 1 || (i == 0 && is_batched))) return false;
    expected *= dims[i];
  }
  return true;
}

}  // namespace hps
