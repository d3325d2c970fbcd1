#include "import/import_plan.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "import/elements.h"
#include "import/hugectr.h"

namespace hps {
namespace {

absl::string_view Text(std::string_view text) { return {text.data(), text.size()}; }

// Which format `path` has, by what lies there.
absl::StatusOr<TableFormat> DetectFormat(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    if (error && error != std::errc::no_such_file_or_directory)
      return absl::PermissionDeniedError(
          absl::StrCat("can't examine ", path, ": ", error.message()));
    return absl::NotFoundError(
        absl::StrCat("no table at ", path, ": there is no such file or directory"));
  }
  const auto has = [&](const char* file) {
    return std::filesystem::exists(std::filesystem::path(path) / file, error);
  };
  if (has(kHugectrKeyFile) || has(kHugectrRowFile)) return TableFormat::kHugectr;
  return absl::InvalidArgumentError(absl::StrCat(path, ": expected a directory with ",
                                                 kHugectrKeyFile, " and ", kHugectrRowFile,
                                                 ", found neither"));
}

absl::StatusOr<std::unique_ptr<TableReader>> OpenTable(const ImportRequest& request,
                                                       const std::string& path) {
  TableFormat format = request.format;
  if (format == TableFormat::kAuto) {
    HPS_ASSIGN_OR_RETURN(format, DetectFormat(path));
  }
  switch (format) {
    case TableFormat::kHugectr:
      return OpenHugectrTable(path, request.dim);
    default:
      return absl::UnimplementedError(absl::StrCat(path, ": unknown format"));
  }
}

absl::StatusOr<TableSource> OpenSource(const ImportRequest& request, const std::string& name,
                                       const std::string& path) {
  HPS_RETURN_IF_ERROR(ValidateTableName(name));
  TableSource source;
  HPS_ASSIGN_OR_RETURN(source.reader, OpenTable(request, path));
  const TableShape& shape = source.reader->shape();
  source.spec = {.name = name, .dim = shape.dim, .dtype = request.dtype.value_or(shape.dtype)};
  if (source.spec.dtype != shape.dtype && shape.dtype != Dtype::kFloat32) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected ", Text(DtypeName(source.spec.dtype)),
                     " or float32 elements, found ", Text(DtypeName(shape.dtype))));
  }
  if (request.default_value != 0.0) {
    const auto value = static_cast<float>(request.default_value);
    const std::vector<float> row(shape.dim, value);
    source.spec.default_row.resize(source.spec.row_bytes());
    ConvertElements(Dtype::kFloat32, std::as_bytes(std::span(row)), source.spec.dtype,
                    source.spec.default_row);
  }
  HPS_RETURN_IF_ERROR(ValidateTableSpec(source.spec));
  return source;
}

// Digits compare as numbers, so that t2 comes before t10.
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

struct NamedPath {
  std::string name;
  std::string path;
};

absl::StatusOr<std::vector<NamedPath>> ListTables(const std::string& directory) {
  std::vector<NamedPath> tables;
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  for (; !error && entries != std::filesystem::directory_iterator(); entries.increment(error)) {
    const std::filesystem::path& path = entries->path();
    if (entries->is_directory(error)) {
      tables.push_back({path.filename().string(), path.string()});
    } else if (path.extension() == ".safetensors") {
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
        directory, ": expected a sub-folder or a .safetensors file per table, found none"));
  }
  std::sort(tables.begin(), tables.end(),
            [](const NamedPath& a, const NamedPath& b) { return NaturallyLess(a.name, b.name); });
  return tables;
}

}  // namespace

std::vector<TableSpec> ImportPlan::specs() const {
  std::vector<TableSpec> specs;
  for (const TableSource& table : tables) specs.push_back(table.spec);
  return specs;
}

absl::StatusOr<ImportPlan> PlanImport(const ImportRequest& request) {
  ImportPlan plan;
  if (request.name.find('/') != std::string::npos) {
    HPS_ASSIGN_OR_RETURN(TableSource source, OpenSource(request, request.name, request.from));
    plan.tables.push_back(std::move(source));
    return plan;
  }
  // The model's name is checked before anything is opened, with any table's name behind it.
  HPS_RETURN_IF_ERROR(ValidateTableName(request.name + "/t"));
  HPS_ASSIGN_OR_RETURN(const std::vector<NamedPath> tables, ListTables(request.from));
  for (const NamedPath& table : tables) {
    HPS_ASSIGN_OR_RETURN(
        TableSource source,
        OpenSource(request, absl::StrCat(request.name, "/", table.name), table.path));
    plan.tables.push_back(std::move(source));
  }
  return plan;
}

}  // namespace hps
