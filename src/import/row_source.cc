#include "import/row_source.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/macros.h"
#include "import/formats/npy_files.h"
#include "import/import_plan.h"
#include "types/elements.h"

namespace hps {

absl::StatusOr<RowSource> RowSource::Open(const ImportRequest& request, bool keys_only) {
  HPS_RETURN_IF_ERROR(ValidateTableName(request.name));
  RowSource source;
  source.keys_only_ = keys_only;
  std::error_code ignored;
  if (keys_only && std::filesystem::is_regular_file(request.from, ignored)) {
    HPS_ASSIGN_OR_RETURN(source.keys_, ReadNpyKeys(request.from));
    source.row_count_ = source.keys_.size();
    source.spec_ = {.name = request.name, .dim = request.dim.value_or(1)};
    return source;
  }
  HPS_ASSIGN_OR_RETURN(const ImportPlan plan, PlanImport(request));
  HPS_CHECK(plan.tables.size() == 1);
  HPS_ASSIGN_OR_RETURN(source.reader_, plan.tables.front().Open());
  source.spec_ = plan.tables.front().spec;
  source.row_count_ = source.reader_->shape().row_count;
  return source;
}

absl::Status RowSource::Read(uint64_t first, size_t count, std::vector<Key>* keys,
                             std::vector<std::byte>* rows) {
  keys->resize(count);
  rows->clear();
  if (reader_ == nullptr) {
    std::copy_n(keys_.begin() + static_cast<ptrdiff_t>(first), count, keys->begin());
    return absl::OkStatus();
  }
  HPS_RETURN_IF_ERROR(reader_->ReadKeys(first, *keys));
  if (keys_only_) return absl::OkStatus();
  const TableShape& shape = reader_->shape();
  rows->resize(count * spec_.row_bytes());
  if (shape.dtype == spec_.dtype) return reader_->ReadRows(first, *rows);
  unconverted_.resize(count * shape.row_bytes());
  HPS_RETURN_IF_ERROR(reader_->ReadRows(first, unconverted_));
  ConvertElements(shape.dtype, unconverted_, spec_.dtype, *rows);
  return absl::OkStatus();
}

}  // namespace hps
