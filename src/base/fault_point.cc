#include "base/fault_point.h"

namespace hps {

// Weak: the definition in src/testing/faults/fault_points.cc takes its place where it is linked.
[[gnu::weak]] absl::Status ReachFaultPoint(const char* /*name*/) { return absl::OkStatus(); }

}  // namespace hps
