#include "inference/row_outputs.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "inference/request_plan.h"

namespace hps {

bool IsJointOutput(const ModelVersion& version, std::string_view name) {
  return (name == kRowsOutput || name == kStatusOutput) && HasKeysConvention(version);
}

absl::Status RowOutputs::Add(std::string_view name) {
  if (IsJointOutput(version_, name))
    return name == kRowsOutput ? AddJointRows() : AddJointStatuses();
  std::string_view table_name = name;
  const bool is_status = table_name.ends_with(kStatusSuffix);
  if (is_status) table_name.remove_suffix(kStatusSuffix.size());
  const std::optional<uint32_t> table = version_.IndexOfTable(table_name);
  if (!table.has_value()) return NoSuchTensor("output", name, version_);
  const auto part = std::find_if(parts_.begin(), parts_.end(),
                                 [&](const TablePart& each) { return each.table == *table; });
  if (part == parts_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("output '", Text(name), "': the input '", Text(table_name), "' is missing"));
  }
  return is_status ? AddStatusesOf(*part, name) : AddRowsOf(*part, name);
}

// `name` is the request's: the version may end before the answer does.
absl::Status RowOutputs::AddRowsOf(TablePart& part, std::string_view name) {
  if (part.table_rows.is_set()) return AskedTwice(name);
  HPS_ASSIGN_OR_RETURN(const size_t bytes,
                       OutputBytes(name, part.key_count, part.row_bytes, limits_));
  part.table_rows = {.output = outputs_.size()};
  Shape shape = part.key_shape;
  shape.dims[shape.dim_count++] = version_.tables()[part.table].dim;
  AddOutputTensor(outputs_, name, Datatype::kFp32, shape, bytes);
  return absl::OkStatus();
}

absl::Status RowOutputs::AddStatusesOf(TablePart& part, std::string_view name) {
  if (part.table_status.is_set()) return AskedTwice(name);
  part.table_status = {.output = outputs_.size()};
  AddOutputTensor(outputs_, name, Datatype::kUint8, part.key_shape, part.key_count);
  return absl::OkStatus();
}

absl::Status RowOutputs::AddJointRows() {
  if (std::exchange(has_joint_rows_, true)) return AskedTwice(kRowsOutput);
  uint64_t bytes = 0;  // at most kKeysPerCallMax rows of at most kRowBytesMax each, as float32
  for (TablePart& part : parts_) {
    part.joint_rows = {.output = outputs_.size(), .offset_bytes = static_cast<size_t>(bytes)};
    bytes += part.key_count * part.row_bytes;
  }
  HPS_ASSIGN_OR_RETURN(const size_t checked_bytes, OutputBytes(kRowsOutput, bytes, 1, limits_));
  Shape shape{.dim_count = 1};
  shape.dims[0] = static_cast<int64_t>(bytes / sizeof(float));
  AddOutputTensor(outputs_, kRowsOutput, Datatype::kFp32, shape, checked_bytes);
  return absl::OkStatus();
}

absl::Status RowOutputs::AddJointStatuses() {
  if (std::exchange(has_joint_statuses_, true)) return AskedTwice(kStatusOutput);
  size_t count = 0;
  for (TablePart& part : parts_) {
    part.joint_status = {.output = outputs_.size(), .offset_bytes = count};
    count += part.key_count;
  }
  Shape shape{.dim_count = 1};
  shape.dims[0] = static_cast<int64_t>(count);
  AddOutputTensor(outputs_, kStatusOutput, Datatype::kUint8, shape, count);
  return absl::OkStatus();
}

// A status tells which level answered with the row, so that it comes with the row only.
absl::Status RowOutputs::CheckStatuses() const {
  for (const TablePart& part : parts_) {
    if (!part.status().is_set() || part.rows().is_set()) continue;
    const std::string rows =
        part.table_status.is_set() ? version_.tables()[part.table].name : std::string(kRowsOutput);
    return absl::InvalidArgumentError(absl::StrCat("output '", rows, Text(kStatusSuffix),
                                                   "' requires output '", rows, "'; add '", rows,
                                                   "' to the requested outputs"));
  }
  return absl::OkStatus();
}

}  // namespace hps
