#include "import/import_source.h"

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "import/default_row.h"
#include "import/formats/open_table.h"

namespace hps {
namespace {

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
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": expected ", std::string(DtypeName(*request.dtype)),
                   wants_float32 ? "" : " or float32", " elements, found ",
                   std::string(DtypeName(shape.dtype)), "; only float32 is converted"));
}

}  // namespace

absl::StatusOr<ImportSource> ImportSource::Create(const ImportRequest& request,
                                                  const std::string& name, const std::string& path,
                                                  const std::shared_ptr<ForeignStore>& store) {
  HPS_RETURN_IF_ERROR(ValidateTableName(name));
  ImportSource source{.spec = {}, .shape = {}, .request = request, .path = path, .store = store};
  {
    HPS_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> reader,
                         OpenTable(request, name, path, store));
    source.shape = reader->shape();
  }
  const TableShape& shape = source.shape;
  HPS_RETURN_IF_ERROR(ConfirmShape(request, shape, path));
  source.spec = {.name = name, .dim = shape.dim, .dtype = request.dtype.value_or(shape.dtype)};
  if (const absl::Status valid = ValidateTableSpec(source.spec); !valid.ok())
    return absl::Status(valid.code(), absl::StrCat(path, ": ", valid.message()));
  HPS_ASSIGN_OR_RETURN(source.spec.default_row, RequestedDefaultRow(request, source.spec));
  return source;
}

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

}  // namespace hps
