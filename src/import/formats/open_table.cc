#include "import/formats/open_table.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/macros.h"
#include "import/formats/foreign_table.h"
#include "import/formats/hugectr.h"
#include "import/formats/hugectr_dump.h"
#include "import/formats/memory_table.h"
#include "import/formats/npy.h"
#include "import/formats/npy_table.h"
#include "import/formats/safetensors_table.h"

namespace hps {
namespace {

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

}  // namespace

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

}  // namespace hps
