// Named places in the code at which a test can make the process die, an operation fail, or a thread
// wait, so that every step of a multi-step change can be its last one.
//
//   absl::Status Switch() {
//     HPS_FAULT_POINT("l3.switch.before_write");  // in functions that return Status or StatusOr
//     ...
//   }
//
// Names are "<folder>.<operation>.<moment>" and unique in the source. The product links a function
// that does nothing. A test program that links src/testing/faults/fault_points.h's library gets one
// that does what the test has planned: the linker chooses, nothing is compiled twice.
#pragma once

#include "absl/status/status.h"
#include "base/macros.h"

namespace hps {

// What HPS_FAULT_POINT calls. Thread-safe.
// Errors: none in the product; in a test program those that the test has planned.
absl::Status ReachFaultPoint(const char* name);

}  // namespace hps

#define HPS_FAULT_POINT(name) HPS_RETURN_IF_ERROR(::hps::ReachFaultPoint(name))
