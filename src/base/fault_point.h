// Named places in the code at which a test can end the process, fail an operation, or block a
// thread, so that every step of a multi-step change can be its last one.
//
//   absl::Status Switch() {
//     HPS_FAULT_POINT("l3.switch.before_write");  // in functions that return Status or StatusOr
//     ...
//   }
//
// Names are "<folder>.<operation>.<moment>" and unique in the source. The product links a function
// that does nothing. A test program that links the library of src/testing/faults/fault_points.h
// gets one that does what the test has planned. The linker chooses; nothing is compiled twice.
#pragma once

#include "absl/status/status.h"
#include "base/macros.h"

namespace hps {

// Called by HPS_FAULT_POINT. Thread-safe. Errors: none in the product; in a test program those that
// the test has planned.
absl::Status ReachFaultPoint(const char* name);

}  // namespace hps

#define HPS_FAULT_POINT(name) HPS_RETURN_IF_ERROR(::hps::ReachFaultPoint(name))
