// Connects hps.tensorflow's library, which has the operator, with this extension, which has the
// sessions.
#include <dlfcn.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hps/table_spec.h"
#include "nanobind/nanobind.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/operator_api.h"
#include "python/csrc/operator_lookup.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

static_assert(kOperatorDimMax == kDimMax);

// A Python function; see OperatorTarget.
PyObject*& Finder() {
  static PyObject* finder = nullptr;
  return finder;
}

absl::Status Answer(const OperatorCall& call) {
  const absl::StatusOr<OperatorTables> tables =
      FindTables({call.source, call.tables, -1, Finder()});
  if (!tables.ok()) return tables.status();
  if (tables->dims.size() != call.table_count) {
    return absl::InvalidArgumentError(absl::StrCat("keys: expected those of ", tables->dims.size(),
                                                   " tables, found ", call.table_count));
  }
  std::vector<OperatorKeys> keys(call.table_count);
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = {call.keys[i], call.key_counts[i],
               call.keys_are_narrow ? ElementType::kInt32 : ElementType::kInt64};
  }
  return LookUp(*tables, keys, {.rows = {call.rows, call.table_count}}, {});
}

int AnswerCall(const OperatorCall& call, char* message, size_t message_bytes) {
  const absl::Status status = Answer(call);
  if (!status.ok()) {
    const absl::string_view text = status.message();
    message[text.copy(message, message_bytes - 1)] = '\0';
  }
  return static_cast<int>(status.code());
}

// `path` is the library that TensorFlow has loaded.
void ConnectTensorflow(const std::string& path, nb::object finder) {
  Finder() = finder.release().ptr();  // for as long as the process
  void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  void* const found = library == nullptr ? nullptr : dlsym(library, kConnectFunction);
  if (found == nullptr)
    Raise(absl::FailedPreconditionError("TensorFlow has not loaded '" + path + "'"));
  reinterpret_cast<void (*)(OperatorFunction*)>(found)(AnswerCall);
}

}  // namespace

void BindTensorflow(nb::module_& module) {
  module.def("connect_tensorflow", ConnectTensorflow, nb::arg("path"), nb::arg("finder"));
}

}  // namespace hps::python
