#include "import/table_listing.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/macros.h"
#include "import/formats/hugectr_dump.h"
#include "import/formats/safetensors_table.h"

namespace hps {
namespace {

// Extension of HugeCTR's table directories: wdl0_sparse_2000.model.
constexpr char kHugectrExtension[] = ".model";

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

void SortNaturally(std::vector<TableSource>& tables) {
  std::sort(tables.begin(), tables.end(), [](const TableSource& a, const TableSource& b) {
    return NaturallyLess(a.name, b.name);
  });
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
  SortNaturally(tables);
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
absl::StatusOr<std::vector<TableSource>> ListStoredTables(const ImportRequest& request,
                                                          const ForeignStore& store) {
  const std::string prefix = request.name + "/";
  std::vector<TableSource> tables;
  for (const std::string& table : store.tables()) {
    if (table.starts_with(prefix)) tables.push_back({table.substr(prefix.size()), request.from});
  }
  if (tables.empty()) {
    return absl::NotFoundError(absl::StrCat(request.from, ": no table of model '", request.name,
                                            "'; it has: ", absl::StrJoin(store.tables(), ", ")));
  }
  SortNaturally(tables);
  return tables;
}

}  // namespace

absl::StatusOr<std::vector<TableSource>> ListTables(const ImportRequest& request,
                                                    const ForeignStore* store,
                                                    std::span<const TableSource> tables) {
  if (store != nullptr) return ListStoredTables(request, *store);
  return tables.empty() ? ListFiles(request.from) : FindFiles(request.from, tables);
}

}  // namespace hps
