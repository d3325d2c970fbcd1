// Arms the fault points of a program from its environment (testing/faults/fault_points.h), before
// its main.
#include <cstdio>
#include <cstdlib>

#include "testing/faults/fault_points.h"

namespace hps {
namespace {

[[maybe_unused]] const bool kIsArmed = [] {
  const absl::Status status = FaultPoints::ArmFromEnvironment();
  if (status.ok()) return true;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::_Exit(3);
}();

}  // namespace

}  // namespace hps
