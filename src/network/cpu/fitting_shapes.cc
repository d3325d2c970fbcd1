#include "network/cpu/fitting_shapes.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace hps {

absl::Status FittingShapes::Check(const Dims& dims) {
  if (const std::optional<absl::Status> known = Known(dims)) return *known;
  MutexLock lock(measuring_);
  // Another thread may have measured them meanwhile.
  if (const std::optional<absl::Status> known = Known(dims)) return *known;
  const Dims rounded = RoundedUp(dims);
  std::optional<absl::Status> status = Known(rounded);
  if (!status.has_value()) status = MeasureAndNote(rounded);
  // They may be too large, or not fit the network, only where they are rounded up.
  if (!status->ok() && rounded != dims) status = MeasureAndNote(dims);
  return *status;
}

FittingShapes::Dims FittingShapes::RoundedUp(Dims dims) const {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (is_free(i) && dims[i] > 0)
      dims[i] = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(dims[i])));
  }
  return dims;
}

// The dimensions that must be equal: those that are free are zero.
FittingShapes::Dims FittingShapes::Fixed(Dims dims) const {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (is_free(i)) dims[i] = 0;
  }
  return dims;
}

std::optional<absl::Status> FittingShapes::Known(const Dims& dims) {
  const Dims fixed = Fixed(dims);
  MutexLock lock(mutex_);
  const auto fitting = fitting_.find(fixed);
  if (fitting != fitting_.end() &&
      std::equal(dims.begin(), dims.end(), fitting->second.begin(), std::less_equal<>())) {
    return absl::OkStatus();
  }
  const auto found = refused_.find(dims);
  return found == refused_.end() ? std::nullopt : std::optional(found->second);
}

absl::Status FittingShapes::MeasureAndNote(const Dims& dims) {
  absl::Status status = measure_(dims);
  MutexLock lock(mutex_);
  if (status.ok()) {
    if (fitting_.size() >= kKnownMax) fitting_.erase(fitting_.begin());
    fitting_.insert_or_assign(Fixed(dims), dims);
  } else {
    if (refused_.size() >= kKnownMax) refused_.erase(refused_.begin());
    refused_.emplace(dims, status);
  }
  return status;
}

}  // namespace hps
