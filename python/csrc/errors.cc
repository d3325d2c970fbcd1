#include "python/csrc/errors.h"

#include "nanobind/nanobind.h"

namespace hps::python {

namespace nb = nanobind;

void Raise(const absl::Status& status) {
  const nb::object classes = nb::module_::import_("hps._errors").attr("BY_CODE");
  const nb::object type = classes[nb::int_(static_cast<int>(status.code()))];
  const nb::object message = nb::steal(PyUnicode_DecodeUTF8(
      status.message().data(), static_cast<Py_ssize_t>(status.message().size()), "replace"));
  PyErr_SetObject(type.ptr(), message.ptr());
  throw nb::python_error();
}

void RaiseType(nb::handle object, const std::string& name, const char* what) {
  std::string text = name + ": expected " + what + ", found ";
  text += nb::type_name(object.type()).c_str();
  // Of an array that has another type of elements.
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  if (!dtype.is_none()) text += std::string(" of ") + nb::str(nb::handle(dtype)).c_str();
  throw nb::type_error(text.c_str());
}

nb::object FileName(const std::string& path) {
  return nb::steal(
      PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size())));
}

void RaiseInvalid(const std::string& message) { Raise(absl::InvalidArgumentError(message)); }

}  // namespace hps::python
