// Opening a store, changing its rows, and its models.
#include "hps/store.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mutex.h"
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

// A file, by whatever name.
struct FileId {
  uint64_t device = 0;
  uint64_t number = 0;

  bool operator==(const FileId&) const = default;
};

// Of the lock file of the store at `path`. A store that is open keeps it open, so that no file of
// another store, which replaces this one at its path, can have its number.
std::optional<FileId> LockOf(const std::string& path) {
  struct stat found {};
  if (stat((path + "/hps.lock").c_str(), &found) != 0) return std::nullopt;
  return FileId{found.st_dev, found.st_ino};
}

// The settings, one a line, without what PrintConfig says of their origin.
std::vector<std::string> SettingsOf(const Config& config) {
  std::vector<std::string> lines = absl::StrSplit(PrintConfig(config), '\n');
  for (std::string& line : lines) line.resize(std::min(line.rfind("  #"), line.size()));
  std::erase_if(lines, [](const std::string& line) { return line.starts_with("store.path"); });
  return lines;
}

// A store that this process has open for writing.
struct Writer {
  std::weak_ptr<Store> store;
  FileId lock;
  std::string file;  // of its configuration; empty = defaults
  std::vector<std::string> settings;
};

struct Writers {
  Mutex mutex;  // also held while a store is opened, so that of two threads the second finds it
  std::vector<Writer> all HPS_GUARDED_BY(mutex);
};

// Never destroyed: a thread may open a store while the process ends.
Writers& TheWriters() {
  static auto* const writers = new Writers;
  return *writers;
}

std::string NameOfSettings(const std::string& file) {
  return file.empty() ? "the default settings" : "the settings of '" + file + "'";
}

// UNAVAILABLE: names both configurations, and a setting in which they differ.
absl::Status OtherSettings(const Writer& open, const std::string& path, const std::string& file,
                           const std::vector<std::string>& settings) {
  const auto [theirs, ours] = std::ranges::mismatch(open.settings, settings);
  const std::string other = theirs == open.settings.end() ? "more settings" : *theirs;
  const std::string mine = ours == settings.end() ? "fewer settings" : *ours;
  return absl::UnavailableError(absl::StrCat(
      "store '", path, "': this process has it open for writing with ", NameOfSettings(open.file),
      " (", other, "), and this call has ", NameOfSettings(file), " (", mine,
      "); open it with the same settings, or close it first"));
}

// The store that this process has open already, or a new one.
absl::StatusOr<std::shared_ptr<Store>> OpenWriter(const Config& config, OpenMode mode,
                                                  const std::string& file) {
  Writers& writers = TheWriters();
  const MutexLock lock(writers.mutex);
  std::erase_if(writers.all, [](const Writer& writer) { return writer.store.expired(); });
  absl::StatusOr<std::unique_ptr<Store>> made = Store::Open(config, mode);
  const std::optional<FileId> file_lock = LockOf(config.store.path);
  const std::vector<std::string> settings = SettingsOf(config);
  if (made.ok()) {
    std::shared_ptr<Store> store = *std::move(made);
    if (file_lock.has_value()) writers.all.push_back({store, *file_lock, file, settings});
    return store;
  }
  // A store that is open is not opened again, here or elsewhere: its lock is held.
  const auto open = std::ranges::find_if(
      writers.all, [&](const Writer& writer) { return writer.lock == file_lock; });
  if (!absl::IsUnavailable(made.status()) || open == writers.all.end()) return made.status();
  if (open->settings != settings) return OtherSettings(*open, config.store.path, file, settings);
  std::shared_ptr<Store> store = open->store.lock();
  if (store == nullptr) return made.status();  // another thread is closing it
  return store;
}

std::unique_ptr<OpenStore> Open(nb::handle path, nb::handle config, const std::string& mode) {
  const OpenMode open_mode = ModeOf(mode);
  Config settings = ReadConfig(path, config, open_mode != OpenMode::kReadOnly);
  const std::string file = config.is_none() ? std::string() : ReadPath(config, "config");
  absl::StatusOr<std::shared_ptr<Store>> store;
  {
    const ReleasedGil released;
    if (open_mode == OpenMode::kReadOnly)  // each call gets its own view of the present rows
      store = Store::Open(settings, open_mode);
    else
      store = OpenWriter(settings, open_mode, file);
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
      .def_prop_ro("is_open", [](const OpenStore& open) { return open.handle.is_open(); })
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
