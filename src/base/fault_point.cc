#include "base/fault_point.h"

namespace hps {

// Weak: a program that links src/testing/faults/fault_points.cc uses that definition instead.
[[gnu::weak]] absl::Status ReachFaultPoint(const char* /*name*/) { return absl::OkStatus(); }

}  // namespace hps
