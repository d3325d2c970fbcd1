#include "import/formats/hugectr.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "hps/table_spec.h"
#include "import/formats/array_reader.h"

namespace hps {
namespace {

// Returns the dim that follows from the sizes of the two files, or `dim` for an empty table.
absl::StatusOr<uint32_t> DimOf(const File& keys, const File& rows, std::optional<uint32_t> dim) {
  if (keys.bytes_at_open() % sizeof(Key) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(keys.path(), ": expected a multiple of ",
                                                   sizeof(Key), " bytes, found ",
                                                   keys.bytes_at_open()));
  }
  const uint64_t row_count = keys.bytes_at_open() / sizeof(Key);
  const uint64_t found = rows.bytes_at_open();
  if (dim.has_value()) {
    const std::optional<uint64_t> expected =
        CheckedMultiply(row_count, uint64_t{*dim} * sizeof(float));
    if (expected != found) {
      const std::string bytes =
          expected.has_value() ? absl::StrCat(*expected) : std::string("more than 2^64");
      return absl::InvalidArgumentError(absl::StrCat(rows.path(), ": expected ", row_count,
                                                     " rows of dim ", *dim, " = ", bytes,
                                                     " bytes, found ", found));
    }
    return *dim;
  }
  if (row_count == 0) {
    if (found == 0)
      return absl::InvalidArgumentError(
          absl::StrCat(rows.path(), ": the table is empty, so its dim must be given (--dim)"));
    return absl::InvalidArgumentError(absl::StrCat(rows.path(), ": expected 0 bytes because ",
                                                   keys.path(), " has no key, found ", found));
  }
  const uint64_t row_bytes = found / row_count;
  if (found % row_count != 0 || row_bytes % sizeof(float) != 0 || row_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(rows.path(), ": expected a multiple of ", row_count, " rows x ", sizeof(float),
                     " bytes (", keys.path(), " has ", row_count, " keys), found ", found));
  }
  // The caller knows the table's dtype and checks whether the row is too wide for it.
  if (row_bytes / sizeof(float) > kDimMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(rows.path(), ": expected a dim of at most ", kDimMax, ", found ", found,
                     " bytes for ", row_count, " keys = dim ", row_bytes / sizeof(float)));
  }
  return static_cast<uint32_t>(row_bytes / sizeof(float));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableReader>> OpenHugectrTable(const std::string& directory,
                                                              std::optional<uint32_t> dim) {
  HPS_ASSIGN_OR_RETURN(File keys,
                       File::OpenForReading(absl::StrCat(directory, "/", kHugectrKeyFile)));
  HPS_ASSIGN_OR_RETURN(File rows,
                       File::OpenForReading(absl::StrCat(directory, "/", kHugectrRowFile)));
  HPS_ASSIGN_OR_RETURN(const uint32_t found_dim, DimOf(keys, rows, dim));
  const TableShape shape{
      .row_count = keys.bytes_at_open() / sizeof(Key), .dim = found_dim, .dtype = Dtype::kFloat32};
  return std::make_unique<ArrayReader>(
      shape, KeyArray{.file = std::move(keys), .offset = 0, .dtype = KeyDtype::kInt64},
      RowArray{.file = std::move(rows), .offset = 0});
}

}  // namespace hps
