// How the extension reports errors: as the Python exception of an absl::Status.
//
// Every function here needs the GIL. The classes are in hps/_errors.py.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"

namespace hps::python {

// REQUIRES: !status.ok().
[[noreturn]] void Raise(const absl::Status& status);

// TypeError: "name: expected `what`, found " and the object's type.
[[noreturn]] void RaiseType(nanobind::handle object, const std::string& name, const char* what);

// As Python holds paths: what is no text is escaped.
nanobind::object FileName(const std::string& path);

// The value of a Python object. Raises TypeError: "name: expected WHAT, found a list".
template <typename T>
T Cast(nanobind::handle object, const char* name, const char* what) {
  T value{};
  if (nanobind::try_cast(object, value)) return value;
  PyErr_Clear();
  RaiseType(object, name, what);
}

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
