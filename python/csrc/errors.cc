#include "python/csrc/errors.h"

#include "nanobind/nanobind.h"

namespace hps::python {

namespace nb = nanobind;

void Raise(const absl::Status& status) {
  const nb::object classes = nb::module_::import_("hps._errors").attr("BY_CODE");
  const nb::object type = classes[nb::int_(static_cast<int>(status.code()))];
  const nb::str message(status.message().data(), status.message().size());
  PyErr_SetObject(type.ptr(), message.ptr());
  throw nb::python_error();
}

void RaiseInvalid(const std::string& message) { Raise(absl::InvalidArgumentError(message)); }

}  // namespace hps::python
