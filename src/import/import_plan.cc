#include "import/import_plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/macros.h"
#include "base/text.h"
#include "base/unix_time.h"
#include "import/formats/elements.h"
#include "import/formats/file.h"
#include "import/formats/foreign_table.h"
#include "import/formats/hugectr.h"
#include "import/formats/hugectr_dump.h"
#include "import/formats/memory_table.h"
#include "import/formats/npy.h"
#include "import/formats/npy_table.h"
#include "import/formats/safetensors_table.h"
#include "types/names.h"

namespace hps {
namespace {

constexpr char kSafetensorsExtension[] = ".safetensors";
// Extension of HugeCTR's table directories: wdl0_sparse_2000.model.
constexpr char kHugectrExtension[] = ".model";
// Every RocksDB directory has this file.
constexpr char kRocksdbFile[] = "CURRENT";

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

// Detects the format of `path` from the files there.
absl::StatusOr<TableFormat> DetectFormat(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    if (error && error != std::errc::no_such_file_or_directory)
      return FileError(error.value(), "can't examine", path);
    return absl::NotFoundError(
        absl::StrCat("no table at ", path, ": there is no such file or directory"));
  }
  if (!std::filesystem::is_directory(status)) {
    if (std::filesystem::path(path).extension() == kSafetensorsExtension)
      return TableFormat::kSafetensors;
    if (std::filesystem::path(path).extension() == kHugectrDumpExtension)
      return TableFormat::kHugectrBin;
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": expected a directory or a file NAME", kSafetensorsExtension, " or NAME",
        kHugectrDumpExtension,
        "; for a file of another name, name the format (--format safetensors or hugectr-bin)"));
  }
  const auto has = [&](const char* file) {
    std::error_code why;
    const auto found = std::filesystem::status(std::filesystem::path(path) / file, why);
    if (found.type() == std::filesystem::file_type::none) error = why;
    return std::filesystem::exists(found);
  };
  error.clear();
  const bool hugectr = has(kHugectrKeyFile) || has(kHugectrRowFile);
  const bool npy = has(kNpyKeyFile) || has(kNpyRowFile);
  if (error) return FileError(error.value(), "can't read the directory", path);
  if (hugectr != npy) return hugectr ? TableFormat::kHugectr : TableFormat::kNpy;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": expected a directory with ", kHugectrKeyFile, " and ", kHugectrRowFile,
                   ", or with ", kNpyKeyFile, " and ", kNpyRowFile, ", found ",
                   npy ? "both; name the format (--format)" : "neither"));
}

absl::StatusOr<std::unique_ptr<TableReader>> OpenTable(const ImportRequest& request,
                                                       const std::string& name,
                                                       const std::string& path,
                                                       const std::shared_ptr<ForeignStore>& store) {
  if (request.memory.has_value()) return OpenMemoryTable(*request.memory);
  TableFormat format = store == nullptr ? request.format : TableFormat::kHugectrRocksdb;
  if (format == TableFormat::kAuto) {
    HPS_ASSIGN_OR_RETURN(format, DetectFormat(path));
  }
  if (request.tensor.has_value() && format != TableFormat::kSafetensors) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a tensor ('", *request.tensor,
                                                   "') can be named for safetensors files only"));
  }
  switch (format) {
    case TableFormat::kHugectr:
      return OpenHugectrTable(path, request.dim);
    case TableFormat::kNpy:
      return OpenNpyTable(path, request.dtype);
    case TableFormat::kSafetensors:
      return OpenSafetensorsTable(path, request.tensor);
    case TableFormat::kHugectrBin:
      return OpenHugectrDump(path, request.dim);
    case TableFormat::kHugectrRocksdb:
    case TableFormat::kHugectrRedis:
      return OpenForeignTable(store, path, name, request.dim);
    case TableFormat::kAuto:
      break;
  }
  return absl::InternalError("unknown format of tables");
}

// Checks that the files hold what the request declares.
absl::Status ConfirmShape(const ImportRequest& request, const TableShape& shape,
                          const std::string& path) {
  if (request.dim.has_value() && *request.dim != shape.dim) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected dim ", *request.dim, ", found ", shape.dim));
  }
  if (!request.dtype.has_value() || *request.dtype == shape.dtype ||
      shape.dtype == Dtype::kFloat32) {
    return absl::OkStatus();
  }
  const bool wants_float32 = *request.dtype == Dtype::kFloat32;
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": expected ", Text(DtypeName(*request.dtype)), wants_float32 ? "" : " or float32",
      " elements, found ", Text(DtypeName(shape.dtype)), "; only float32 is converted"));
}

std::string LargestFinite(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "3.4028235e38";
    case Dtype::kFloat16:
      return "65504";
    case Dtype::kBfloat16:
      return "3.3895314e38";
  }
  return "unknown";
}

absl::StatusOr<std::vector<std::byte>> DefaultRow(const ImportRequest& request,
                                                  const TableSpec& spec) {
  if (request.default_file.has_value())
    return ReadNpyRow(*request.default_file, spec.dim, spec.dtype);
  if (request.default_value == 0.0) return std::vector<std::byte>();
  const std::vector<float> row(spec.dim, static_cast<float>(request.default_value));
  std::vector<std::byte> converted(spec.row_bytes());
  const ElementCounts counts =
      ConvertElements(Dtype::kFloat32, std::as_bytes(std::span(row)), spec.dtype, converted);
  const bool fits_float = std::isfinite(row[0]) == std::isfinite(request.default_value);
  if (fits_float && counts.overflowed == 0) return converted;
  return absl::InvalidArgumentError(
      absl::StrCat("the default value ", PrintDouble(request.default_value), " of table '",
                   spec.name, "' exceeds the range of ", Text(DtypeName(spec.dtype)),
                   ", whose largest finite value is ", LargestFinite(spec.dtype)));
}

absl::StatusOr<ImportSource> OpenSource(const ImportRequest& request, const std::string& name,
                                        const std::string& path,
                                        const std::shared_ptr<ForeignStore>& store) {
  HPS_RETURN_IF_ERROR(ValidateTableName(name));
  ImportSource source;
  {
    HPS_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> reader,
                         OpenTable(request, name, path, store));
    source.shape = reader->shape();
  }
  source.request = request;
  source.path = path;
  source.store = store;
  const TableShape& shape = source.shape;
  HPS_RETURN_IF_ERROR(ConfirmShape(request, shape, path));
  source.spec = {.name = name, .dim = shape.dim, .dtype = request.dtype.value_or(shape.dtype)};
  if (const absl::Status valid = ValidateTableSpec(source.spec); !valid.ok())
    return absl::Status(valid.code(), absl::StrCat(path, ": ", valid.message()));
  HPS_ASSIGN_OR_RETURN(source.spec.default_row, DefaultRow(request, source.spec));
  return source;
}

// Compares digits as numbers, so that t2 comes before t10.
bool NaturallyLess(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto digits = [&](std::string_view text, size_t& at) {
        while (at < text.size() && text[at] == '0') ++at;
        const size_t begin = at;
        while (at < text.size() && is_digit(text[at])) ++at;
        return text.substr(begin, at - begin);
      };
      const std::string_view x = digits(a, i);
      const std::string_view y = digits(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;
}

absl::StatusOr<std::vector<TableSource>> ListFiles(const std::string& directory) {
  std::vector<TableSource> tables;
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::filesystem::path& path = entries->path();
    // A table that cannot be examined is an error: skipping it would switch the model's other
    // tables without it.
    const std::filesystem::file_status status = entries->status(error);
    if (!std::filesystem::status_known(status) || !std::filesystem::exists(status)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path.string(), ": expected a table's sub-folder or file, found ",
                       error ? error.message() : "a dangling link"));
    }
    if (std::filesystem::is_directory(status)) {
      const bool is_hugectr = path.extension() == kHugectrExtension;
      const std::filesystem::path name = is_hugectr ? path.stem() : path.filename();
      tables.push_back({name.string(), path.string()});
    } else if (path.extension() == kSafetensorsExtension ||
               path.extension() == kHugectrDumpExtension) {
      tables.push_back({path.stem().string(), path.string()});
    }
  }
  if (error == std::errc::no_such_file_or_directory)
    return absl::NotFoundError(absl::StrCat("no model at ", directory, ": ", error.message()));
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory, ": expected a directory with a sub-folder per table: ", error.message()));
  }
  if (tables.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        directory, ": expected a sub-folder, a .safetensors or a .bin file per table, found none"));
  }
  std::sort(tables.begin(), tables.end(), [](const TableSource& a, const TableSource& b) {
    return NaturallyLess(a.name, b.name);
  });
  const auto twice = std::adjacent_find(
      tables.begin(), tables.end(),
      [](const TableSource& a, const TableSource& b) { return a.name == b.name; });
  if (twice == tables.end()) return tables;
  return absl::InvalidArgumentError(absl::StrCat(directory, ": table '", twice->name,
                                                 "' occurs twice, as ", twice->from, " and ",
                                                 std::next(twice)->from));
}

// Searches the tables that have no path in the model's directory.
absl::StatusOr<std::vector<TableSource>> FindFiles(const std::string& directory,
                                                   std::span<const TableSource> tables) {
  std::vector<TableSource> found(tables.begin(), tables.end());
  if (std::none_of(found.begin(), found.end(), [](const auto& one) { return one.from.empty(); }))
    return found;
  HPS_ASSIGN_OR_RETURN(const std::vector<TableSource> files, ListFiles(directory));
  for (TableSource& table : found) {
    const auto file = std::find_if(files.begin(), files.end(),
                                   [&](const TableSource& one) { return one.name == table.name; });
    if (file == files.end()) {
      return absl::NotFoundError(absl::StrCat(directory, ": model.toml names the table '",
                                              table.name,
                                              "', which has no sub-folder and no file"));
    }
    table.from = file->from;
  }
  return found;
}

// Lists the tables of the model in a database of HugeCTR.
absl::StatusOr<std::vector<TableSource>> ListStoredTables(
    const ImportRequest& request, const std::shared_ptr<ForeignStore>& store) {
  const std::string prefix = request.name + "/";
  std::vector<TableSource> tables;
  for (const std::string& table : store->tables()) {
    if (table.starts_with(prefix)) tables.push_back({table.substr(prefix.size()), request.from});
  }
  if (tables.empty()) {
    return absl::NotFoundError(absl::StrCat(request.from, ": no table of model '", request.name,
                                            "'; it has: ", absl::StrJoin(store->tables(), ", ")));
  }
  std::sort(tables.begin(), tables.end(), [](const TableSource& a, const TableSource& b) {
    return NaturallyLess(a.name, b.name);
  });
  return tables;
}

// Of a database; nothing for files.
std::optional<TableFormat> DatabaseFormat(const ImportRequest& request) {
  if (request.format == TableFormat::kHugectrRocksdb ||
      request.format == TableFormat::kHugectrRedis) {
    return request.format;
  }
  if (request.format != TableFormat::kAuto) return std::nullopt;
  if (IsRedisUrl(request.from)) return TableFormat::kHugectrRedis;
  std::error_code error;
  const std::filesystem::path file = std::filesystem::path(request.from) / kRocksdbFile;
  if (std::filesystem::is_regular_file(file, error)) return TableFormat::kHugectrRocksdb;
  return std::nullopt;
}

// Null for files.
absl::StatusOr<std::shared_ptr<ForeignStore>> OpenDatabase(const ImportRequest& request,
                                                           const ForeignStoreOpener& opener) {
  // Before any message that would repeat a password.
  if (IsRedisUrl(request.from)) HPS_RETURN_IF_ERROR(CheckRedisUrlHasNoPassword(request.from));
  const std::optional<TableFormat> format = DatabaseFormat(request);
  if (request.partitions.has_value() && format != TableFormat::kHugectrRedis) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.from, ": partitions can be given for the format hugectr-redis only"));
  }
  if (!format.has_value()) return std::shared_ptr<ForeignStore>();
  if (opener == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.from, ": expected table files, found a database of HugeCTR, which ",
                     "`hps import` alone reads"));
  }
  ImportRequest resolved = request;
  resolved.format = *format;
  return opener(resolved);
}

UpdateStart Now() { return {.kind = UpdateStart::Kind::kTime, .time_ms = UnixMilliseconds()}; }

}  // namespace

absl::StatusOr<std::unique_ptr<TableReader>> ImportSource::Open() const {
  absl::StatusOr<std::unique_ptr<TableReader>> reader = OpenTable(request, spec.name, path, store);
  if (absl::IsInvalidArgument(reader.status())) {
    return absl::DataLossError(
        absl::StrCat("the table's files changed during the import: ", reader.status().message()));
  }
  HPS_RETURN_IF_ERROR(reader.status());
  const TableShape& found = (*reader)->shape();
  if (found == shape) return reader;
  return absl::DataLossError(absl::StrCat(
      path, ": the table's files changed during the import: expected ", shape.row_count,
      " rows of dim ", shape.dim, ", found ", found.row_count, " of dim ", found.dim));
}

std::vector<TableSpec> ImportPlan::specs() const {
  std::vector<TableSpec> specs;
  for (const ImportSource& table : tables) specs.push_back(table.spec);
  return specs;
}

std::string ImportPlan::model() const { return ModelOf(tables.front().spec.name); }

absl::StatusOr<ImportPlan> PlanImport(const ImportRequest& request,
                                      const ForeignStoreOpener& opener,
                                      std::span<const TableSource> tables) {
  ImportPlan plan{.tables = {}, .begin = Now()};
  if (request.memory.has_value()) {
    HPS_ASSIGN_OR_RETURN(ImportSource source,
                         OpenSource(request, request.name, kMemoryTablePath, nullptr));
    plan.tables.push_back(std::move(source));
    return plan;
  }
  HPS_ASSIGN_OR_RETURN(const std::shared_ptr<ForeignStore> store, OpenDatabase(request, opener));
  if (request.name.find('/') != std::string::npos) {
    HPS_ASSIGN_OR_RETURN(ImportSource source,
                         OpenSource(request, request.name, request.from, store));
    plan.tables.push_back(std::move(source));
    return plan;
  }
  // Checks the model's name, with a placeholder for the table, before any file is opened.
  HPS_RETURN_IF_ERROR(ValidateTableName(request.name + "/t"));
  HPS_ASSIGN_OR_RETURN(const std::vector<TableSource> sources,
                       store != nullptr ? ListStoredTables(request, store)
                       : tables.empty() ? ListFiles(request.from)
                                        : FindFiles(request.from, tables));
  for (const TableSource& table : sources) {
    const std::string name = absl::StrCat(request.name, "/", table.name);
    if (const absl::Status status = ValidateTableName(name); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          table.from, ": ", status.message(),
          "; rename it, take it out of the directory, or import it alone as MODEL/TABLE"));
    }
    ImportRequest one = request;
    if (table.dim.has_value()) one.dim = table.dim;
    one.default_value = table.default_value.value_or(request.default_value);
    HPS_ASSIGN_OR_RETURN(ImportSource source, OpenSource(one, name, table.from, store));
    plan.tables.push_back(std::move(source));
  }
  return plan;
}

}  // namespace hps
