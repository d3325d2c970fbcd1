// Which shapes of a network's inputs fit: the network takes them, and no tensor inside it becomes
// too large.
//
// Measuring shapes takes milliseconds, so the results are kept. The free dimensions are the
// batch: shapes fit where those of a larger batch do, so batches are measured as powers of two, and
// exactly only where these do not fit. A network may take three keys for each sample and not two,
// so every other dimension is measured as it is.
//
// Thread-safe. Shapes that are known do not wait for others that are being measured.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace hps {

class FittingShapes {
 public:
  using Dims = std::vector<int64_t>;  // of all inputs, one after the other
  // OK if shapes of these dimensions fit. Called by one thread at a time.
  using Measure = std::function<absl::Status(const Dims&)>;

  // `is_free`: by position in Dims; the others are fixed.
  FittingShapes(std::vector<bool> is_free, Measure measure)
      : is_free_(std::move(is_free)), measure_(std::move(measure)) {}

  // Errors: those of the Measure.
  absl::Status Check(const Dims& dims);

 private:
  static constexpr size_t kKnownMax = 4096;

  bool is_free(size_t i) const { return i < is_free_.size() && is_free_[i]; }
  Dims RoundedUp(Dims dims) const;
  Dims Fixed(Dims dims) const;
  std::optional<absl::Status> Known(const Dims& dims);
  absl::Status MeasureAndNote(const Dims& dims) HPS_REQUIRES(measuring_);

  const std::vector<bool> is_free_;
  Mutex measuring_;  // taken before mutex_
  const Measure measure_;
  Mutex mutex_;
  // Shapes that fit, by their dimensions that are not free (Fixed).
  std::map<Dims, Dims> fitting_ HPS_GUARDED_BY(mutex_);
  std::map<Dims, absl::Status> refused_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
