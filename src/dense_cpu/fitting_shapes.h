// Which shapes of a network's inputs fit, because no tensor inside the network becomes too large.
//
// To measure shapes takes milliseconds, so what was measured is kept. Tensors grow with the
// dimensions of the inputs: shapes fit where larger ones do. Dimensions that are not fixed are
// measured as powers of two, so that few are; the exact ones are measured only where those do not
// fit.
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
  static constexpr size_t kKnownMax = 256;

  Dims RoundedUp(Dims dims) const;
  bool Covers(const Dims& fitting, const Dims& dims) const;
  std::optional<absl::Status> Known(const Dims& dims);
  absl::Status MeasureAndNote(const Dims& dims) HPS_REQUIRES(measuring_);

  const std::vector<bool> is_free_;
  Mutex measuring_;  // taken before mutex_
  const Measure measure_;
  Mutex mutex_;
  std::vector<Dims> fitting_ HPS_GUARDED_BY(mutex_);  // none of them covers another
  std::map<Dims, absl::Status> refused_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
