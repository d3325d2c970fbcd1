#include "import/foreign_database.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

// Every RocksDB directory has this file.
constexpr char kRocksdbFile[] = "CURRENT";

// Returns nothing for files.
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

}  // namespace

absl::StatusOr<std::shared_ptr<ForeignStore>> OpenForeignDatabase(
    const ImportRequest& request, const ForeignStoreOpener& opener) {
  if (request.memory.has_value()) return std::shared_ptr<ForeignStore>();
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

}  // namespace hps
