// Opening a store, changing its rows, and its models.
#include "hps/store.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "c_api/store_json.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/unique_ptr.h"
#include "python/csrc/arrays.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

OpenMode ModeOf(const std::string& mode) {
  if (mode == "r") return OpenMode::kReadOnly;
  if (mode == "rw") return OpenMode::kReadWrite;
  if (mode == "create") return OpenMode::kCreate;
  RaiseInvalid("mode: expected 'r', 'rw' or 'create', found '" + mode + "'");
}

std::unique_ptr<OpenStore> Open(nb::handle path, nb::handle config, const std::string& mode) {
  const OpenMode open_mode = ModeOf(mode);
  Config settings = ReadConfig(path, config, open_mode != OpenMode::kReadOnly);
  absl::StatusOr<std::unique_ptr<Store>> store;
  {
    const ReleasedGil released;
    store = Store::Open(settings, open_mode);
  }
  return std::make_unique<OpenStore>(std::move(settings), ValueOrRaise(std::move(store)));
}

// Rows of None delete the keys.
void Apply(const OpenStore& open, const std::string& table, nb::handle keys, nb::handle rows,
           double timeout) {
  const std::shared_ptr<Store> store = open.handle.Use();
  std::vector<Key> widened;
  Array key_array;
  TableUpdate update{.table = table, .is_delete = rows.is_none()};
  update.keys = ReadKeys(keys, {"keys"}, widened, key_array);
  Array row_array;
  if (!update.is_delete) {
    row_array = ReadArray(rows, {"rows"}, false);
    const RowArray read = ReadRows(row_array, update.keys.size());
    update.rows = read.bytes;
    update.dim = read.dim;
    update.dtype = read.dtype;
  }
  const std::chrono::nanoseconds longest = Seconds(timeout);
  absl::Status status;
  {
    const ReleasedGil released;
    status = store->Apply(update, longest);
  }
  RaiseIfError(status);
}

// Calls `work` with the store, without the GIL.
template <typename Work>
void WithStore(const OpenStore& open, const Work& work) {
  const std::shared_ptr<Store> store = open.handle.Use();
  absl::Status status;
  {
    const ReleasedGil released;
    status = work(*store);
  }
  RaiseIfError(status);
}

}  // namespace

std::chrono::nanoseconds Seconds(double seconds) {
  constexpr double kSecondsMax = 1e9;
  if (!(seconds >= 0)) RaiseInvalid("timeout: expected a number of seconds, not below 0");
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::min(seconds, kSecondsMax)));
}

Config ReadConfig(nb::handle path, nb::handle config, bool writes) {
  if (path.is_none() && config.is_none())
    RaiseInvalid("path: neither the path of a store nor a configuration file is given");
  Config settings;
  if (!config.is_none()) settings = ValueOrRaise(LoadConfig(ReadPath(config, "config")));
  if (!path.is_none()) settings.store.path = ReadPath(path, "path");
  CheckFork(writes);
  return settings;
}

std::string ReadPath(nb::handle path, const char* name) {
  if (nb::isinstance<nb::bytes>(path)) {
    const auto bytes = nb::cast<nb::bytes>(path);
    return {bytes.c_str(), bytes.size()};
  }
  return Cast<std::string>(path, name, "a path");
}

void BindStore(nb::module_& module) {
  nb::class_<OpenStore>(module, "Store")
      .def("close", [](OpenStore& open) { open.handle.Close(); })
      .def_prop_ro("path", [](const OpenStore& open) { return FileName(open.config.store.path); })
      .def_prop_ro("lookup_timeout",
                   [](const OpenStore& open) {
                     return std::chrono::duration<double>(open.config.lookup.timeout).count();
                   })
      .def("apply", Apply, nb::arg("table"), nb::arg("keys"), nb::arg("rows").none(),
           nb::arg("timeout"))
      .def("statistics",
           [](const OpenStore& open) { return StatisticsJson(open.handle.Use()->Statistics()); })
      .def("drop",
           [](const OpenStore& open, const std::string& table) {
             WithStore(open, [&](Store& store) { return store.Drop(table); });
           })
      .def("drain",
           [](const OpenStore& open, double timeout) {
             const std::chrono::nanoseconds longest = Seconds(timeout);
             WithStore(open, [&](Store& store) { return store.DrainPromotions(longest); });
           })
      .def("load", [](const OpenStore& open) {
        WithStore(open, [](Store& store) { return store.models().LoadAll(); });
      });
  module.def("open", Open, nb::arg("path").none(), nb::arg("config").none(), nb::arg("mode"));
}

}  // namespace hps::python
