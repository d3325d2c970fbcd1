// Tables in and out: import, export, drop, verify, inspect, generate.
#include "hps/transfer.h"

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hps/store.h"
#include "import/generate.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/csrc/arrays.h"
#include "python/csrc/bindings.h"
#include "python/csrc/errors.h"
#include "python/csrc/gil.h"
#include "types/update_start.h"

namespace hps::python {
namespace {

namespace nb = nanobind;

constexpr char kCount[] = "a whole number, not below 0";

constexpr std::array<std::pair<std::string_view, TableFormat>, 7> kFormats = {{
    {"auto", TableFormat::kAuto},
    {"hugectr", TableFormat::kHugectr},
    {"npy", TableFormat::kNpy},
    {"safetensors", TableFormat::kSafetensors},
    {"hugectr-bin", TableFormat::kHugectrBin},
    {"hugectr-rocksdb", TableFormat::kHugectrRocksdb},
    {"hugectr-redis", TableFormat::kHugectrRedis},
}};

TableFormat FormatOf(const std::string& name) {
  for (const auto& [text, format] : kFormats)
    if (text == name) return format;
  RaiseInvalid(
      "format: expected 'auto', 'hugectr', 'npy', 'safetensors', 'hugectr-bin', "
      "'hugectr-rocksdb' or 'hugectr-redis', found '" +
      name + "'");
}

Dtype DtypeOf(const std::string& name) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16})
    if (DtypeName(dtype) == name) return dtype;
  RaiseInvalid("dtype: expected 'float32', 'float16' or 'bfloat16', found '" + name + "'");
}

nb::str Text(std::string_view text) { return nb::str(text.data(), text.size()); }

// Calls the Python function with (step, done, total). What it raises is dropped: an import goes on.
ProgressFunction ProgressOf(nb::handle function) {
  if (function.is_none()) return {};
  return [function](const Progress& progress) {
    const nb::gil_scoped_acquire acquired;
    PyObject* const result = PyObject_CallFunction(function.ptr(), "sKK", progress.step.c_str(),
                                                   static_cast<unsigned long long>(progress.done),
                                                   static_cast<unsigned long long>(progress.total));
    if (result == nullptr) PyErr_WriteUnraisable(function.ptr());
    Py_XDECREF(result);
  };
}

// What `options` says of an import, without the rows.
ImportRequest ReadImport(const std::string& table, nb::dict options) {
  ImportRequest request{.name = table};
  const auto get = [&](const char* name) {
    return options.contains(name) ? nb::object(options[name]) : nb::object(nb::none());
  };
  if (const nb::object from = get("from_path"); !from.is_none())
    request.from = ReadPath(from, "from_path");
  if (const nb::object format = get("format"); !format.is_none())
    request.format = FormatOf(Cast<std::string>(format, "format", "a string"));
  if (const nb::object dim = get("dim"); !dim.is_none())
    request.dim = Cast<uint32_t>(dim, "dim", kCount);
  if (const nb::object dtype = get("dtype"); !dtype.is_none())
    request.dtype = DtypeOf(Cast<std::string>(dtype, "dtype", "a string"));
  if (const nb::object value = get("default"); !value.is_none())
    request.default_value = Cast<double>(value, "default", "a number");
  if (const nb::object file = get("default_file"); !file.is_none())
    request.default_file = ReadPath(file, "default_file");
  if (const nb::object tensor = get("tensor"); !tensor.is_none())
    request.tensor = Cast<std::string>(tensor, "tensor", "a string");
  if (const nb::object partitions = get("partitions"); !partitions.is_none())
    request.partitions = Cast<uint32_t>(partitions, "partitions", kCount);
  if (const nb::object id = get("import_id"); !id.is_none())
    request.import_id = Cast<std::string>(id, "import_id", "a string");
  if (const nb::object from = get("stream_from"); !from.is_none()) {
    const auto start = ParseUpdateStart(Cast<std::string>(from, "stream_from", "a string"));
    if (!start.ok()) RaiseInvalid("stream_from: " + std::string(start.status().message()));
    request.update_start = *start;
  }
  if (const nb::object threads = get("threads"); !threads.is_none())
    request.threads = Cast<uint32_t>(threads, "threads", kCount);
  request.progress = ProgressOf(get("progress"));
  return request;
}

nb::dict DescribeTable(const TableInfo& info) {
  nb::dict table;
  table["name"] = info.spec.name;
  table["dim"] = info.spec.dim;
  table["dtype"] = Text(DtypeName(info.spec.dtype));
  table["rows"] = info.row_count;
  table["bytes"] = info.bytes;
  nb::list row;
  for (const float value : DefaultRow(info.spec)) row.append(value);
  table["default"] = row;
  table["incarnation"] = info.incarnation;
  table["import_id"] = info.import_id;
  table["stream_from"] = Text(FormatUpdateStart(info.update_start));
  nb::list positions;
  for (const StreamPosition& position : info.positions) {
    nb::dict one;
    one["partition"] = position.partition;
    one["offset"] = position.offset;
    one["generation"] = position.generation;
    positions.append(one);
  }
  table["positions"] = positions;
  return table;
}

nb::dict DescribeImport(const ImportReport& report) {
  nb::dict result;
  nb::list tables;
  for (const ImportedTable& imported : report.tables) {
    nb::dict table = DescribeTable(imported.info);
    table["bytes_read"] = imported.bytes_read;
    table["non_finite"] = imported.non_finite_count;
    tables.append(table);
  }
  result["tables"] = tables;
  result["seconds"] = report.seconds;
  result["staged"] = report.staged;
  nb::list warnings;
  for (const std::string& warning : report.warnings) warnings.append(warning);
  result["warnings"] = warnings;
  return result;
}

// Into an open store, or else into the one that `target`, a pair (path, config), names.
nb::dict Import(nb::handle target, const std::string& table, nb::handle keys, nb::handle rows,
                const nb::dict& options) {
  ImportRequest request = ReadImport(table, options);
  std::vector<Key> widened;
  Array key_array;
  Array row_array;
  if (!rows.is_none()) {
    TableInMemory memory{.keys = ReadKeys(keys, {"keys"}, widened, key_array)};
    row_array = ReadArray(rows, {"rows"}, false);
    const RowArray read = ReadRows(row_array, memory.keys.size());
    memory.rows = read.bytes;
    memory.dim = read.dim;
    memory.dtype = read.dtype;
    request.memory = memory;
  }
  std::shared_ptr<Store> store;
  Config config;
  if (nb::isinstance<OpenStore>(target)) {
    store = nb::cast<OpenStore&>(target).handle.Use();
  } else {
    config = ReadConfig(target[0], target[1], true);
  }
  absl::StatusOr<ImportReport> report;
  {
    const ReleasedGil released;
    report = store != nullptr ? store->Import(request) : ImportTables(config, request);
  }
  return DescribeImport(ValueOrRaise(std::move(report)));
}

nb::dict DescribeExport(const ExportReport& report) {
  nb::dict result;
  result["rows"] = report.row_count;
  result["bytes"] = report.bytes;
  result["seconds"] = report.seconds;
  return result;
}

nb::dict Export(const OpenStore& open, const std::string& table, nb::handle to,
                const std::string& format, nb::handle progress) {
  const std::shared_ptr<Store> store = open.handle.Use();
  const ExportRequest request{.name = table,
                              .to = ReadPath(to, "to"),
                              .format = FormatOf(format),
                              .progress = ProgressOf(progress)};
  absl::StatusOr<ExportReport> report;
  {
    const ReleasedGil released;
    report = store->Export(request);
  }
  return DescribeExport(ValueOrRaise(std::move(report)));
}

// (keys, rows, dim, dtype): the first two as bytes.
nb::tuple ExportToMemory(const OpenStore& open, const std::string& table) {
  const std::shared_ptr<Store> store = open.handle.Use();
  std::string keys;
  std::string rows;
  absl::StatusOr<std::vector<TableInfo>> tables;
  absl::Status status;
  {
    const ReleasedGil released;
    tables = store->Tables();
    const RowSink sink = [&](std::span<const Key> some, HostRows view) {
      keys.append(reinterpret_cast<const char*>(some.data()), some.size_bytes());
      rows.append(reinterpret_cast<const char*>(view.data), view.row_count * view.row_bytes);
      return absl::OkStatus();
    };
    status = store->Export({.name = table, .sink = sink}).status();
  }
  RaiseIfError(status);
  for (const TableInfo& info : ValueOrRaise(std::move(tables))) {
    if (info.spec.name != table) continue;
    return nb::make_tuple(nb::bytes(keys.data(), keys.size()), nb::bytes(rows.data(), rows.size()),
                          info.spec.dim, Text(DtypeName(info.spec.dtype)));
  }
  Raise(absl::NotFoundError("no table '" + table + "'"));
}

nb::dict Inspect(nb::handle path, nb::handle config) {
  const Config settings = ReadConfig(path, config, false);
  absl::StatusOr<std::vector<PendingImport>> pending;
  absl::StatusOr<std::unique_ptr<Store>> store;
  absl::StatusOr<std::vector<TableInfo>> tables;
  {
    const ReleasedGil released;
    // First, so that an import that is just being committed is in one of the two lists.
    pending = PendingImports(settings);
    store = Store::Open(settings, OpenMode::kReadOnly);
    if (store.ok()) tables = (*store)->Tables();
  }
  RaiseIfError(store.status());
  nb::dict result;
  result["format_version"] = (*store)->format_version();
  nb::list described;
  for (const TableInfo& info : ValueOrRaise(std::move(tables)))
    described.append(DescribeTable(info));
  result["tables"] = described;
  nb::list staged;
  for (const PendingImport& import : ValueOrRaise(std::move(pending))) {
    nb::dict one;
    nb::list waiting;
    for (const TableInfo& info : import.tables) waiting.append(DescribeTable(info));
    one["tables"] = waiting;
    one["problem"] = import.problem;
    staged.append(one);
  }
  result["staged"] = staged;
  return result;
}

nb::list TablesOf(const OpenStore& open) {
  const std::shared_ptr<Store> store = open.handle.Use();
  nb::list tables;
  for (const TableInfo& info : ValueOrRaise(store->Tables())) tables.append(DescribeTable(info));
  return tables;
}

nb::dict Verify(nb::handle path, nb::handle config, bool repair, nb::handle progress) {
  const Config settings = ReadConfig(path, config, repair);
  const ProgressFunction function = ProgressOf(progress);
  absl::StatusOr<VerifyReport> report;
  {
    const ReleasedGil released;
    report = VerifyStore(settings, repair, function);
  }
  RaiseIfError(report.status());
  nb::dict result;
  result["tables"] = report->tables;
  result["rows"] = report->rows;
  result["rows_lost"] = report->rows_lost;
  result["bytes"] = report->bytes;
  result["damage_count"] = report->damage_count;
  result["networks_removed"] = report->networks_removed;
  nb::list damage;
  for (const Damage& found : report->damage) {
    nb::dict one;
    one["table"] = found.table;
    one["file"] = found.file;
    one["key"] = found.key.has_value() ? nb::object(nb::int_(*found.key)) : nb::object(nb::none());
    one["what"] = found.what;
    damage.append(one);
  }
  result["damage"] = damage;
  return result;
}

void Drop(nb::handle path, nb::handle config, const std::string& table) {
  const Config settings = ReadConfig(path, config, true);
  absl::Status status;
  {
    const ReleasedGil released;
    status = DropTable(settings, table);
  }
  RaiseIfError(status);
}

void Generate(nb::handle out, nb::dict options) {
  GenerateRequest request{.out = ReadPath(out, "out")};
  request.tables = Cast<uint32_t>(options["tables"], "tables", kCount);
  request.rows = Cast<uint64_t>(options["rows"], "rows", kCount);
  request.dim = Cast<uint32_t>(options["dim"], "dim", kCount);
  request.alpha = Cast<double>(options["alpha"], "alpha", "a number");
  request.seed = Cast<uint64_t>(options["seed"], "seed", kCount);
  request.requests = Cast<uint64_t>(options["requests"], "requests", kCount);
  request.format = FormatOf(Cast<std::string>(options["format"], "format", "a string"));
  request.progress = ProgressOf(options["progress"]);
  absl::Status status;
  {
    const ReleasedGil released;
    status = GenerateTables(request);
  }
  RaiseIfError(status);
}

}  // namespace

void BindTransfer(nb::module_& module) {
  module.def("import_table", Import, nb::arg("target"), nb::arg("table"), nb::arg("keys").none(),
             nb::arg("rows").none(), nb::arg("options"));
  module.def("export", Export, nb::arg("store"), nb::arg("table"), nb::arg("to"), nb::arg("format"),
             nb::arg("progress").none());
  module.def("export_to_memory", ExportToMemory, nb::arg("store"), nb::arg("table"));
  module.def("tables", TablesOf, nb::arg("store"));
  module.def("inspect", Inspect, nb::arg("path").none(), nb::arg("config").none());
  module.def("verify", Verify, nb::arg("path").none(), nb::arg("config").none(), nb::arg("repair"),
             nb::arg("progress").none());
  module.def("drop", Drop, nb::arg("path").none(), nb::arg("config").none(), nb::arg("table"));
  module.def("generate", Generate, nb::arg("out"), nb::arg("options"));
}

}  // namespace hps::python
