#include "dense_cpu/fitting_shapes.h"

#include <algorithm>
#include <bit>

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
  for (size_t i = 0; i < std::min(dims.size(), is_free_.size()); ++i) {
    if (is_free_[i] && dims[i] > 0)
      dims[i] = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(dims[i])));
  }
  return dims;
}

bool FittingShapes::Covers(const Dims& fitting, const Dims& dims) const {
  if (dims.size() != fitting.size()) return false;
  for (size_t i = 0; i < dims.size(); ++i) {
    const bool is_free = i < is_free_.size() && is_free_[i];
    if (is_free ? dims[i] > fitting[i] : dims[i] != fitting[i]) return false;
  }
  return true;
}

std::optional<absl::Status> FittingShapes::Known(const Dims& dims) {
  MutexLock lock(mutex_);
  for (const Dims& fitting : fitting_)
    if (Covers(fitting, dims)) return absl::OkStatus();
  const auto found = refused_.find(dims);
  return found == refused_.end() ? std::nullopt : std::optional(found->second);
}

absl::Status FittingShapes::MeasureAndNote(const Dims& dims) {
  absl::Status status = measure_(dims);
  MutexLock lock(mutex_);
  if (status.ok()) {
    std::erase_if(fitting_, [&](const Dims& smaller) { return Covers(dims, smaller); });
    if (fitting_.size() >= kKnownMax) fitting_.clear();
    fitting_.push_back(dims);
  } else {
    if (refused_.size() >= kKnownMax) refused_.clear();
    refused_.emplace(dims, status);
  }
  return status;
}

}  // namespace hps
