// How the extension reports errors: as the Python exception of an absl::Status.
//
// Every function here needs the GIL. The classes are in hps/_errors.py.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hps::python {

// REQUIRES: !status.ok().
[[noreturn]] void Raise(const absl::Status& status);

// hps.InvalidArgumentError. `message` begins with the name of the argument.
[[noreturn]] void RaiseInvalid(const std::string& message);

inline void RaiseIfError(const absl::Status& status) {
  if (!status.ok()) Raise(status);
}

template <typename T>
T ValueOrRaise(absl::StatusOr<T> result) {
  RaiseIfError(result.status());
  return *std::move(result);
}

}  // namespace hps::python
