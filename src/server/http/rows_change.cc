#include "server/http/rows_change.h"

#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps::server {
namespace {

absl::Status Wrong(std::string_view input, std::string_view expected, const InputTensor& found) {
  std::string shape;
  for (const int64_t dim : found.shape.values())
    absl::StrAppend(&shape, shape.empty() ? "" : ",", dim);
  return absl::InvalidArgumentError(
      absl::StrCat("input '", std::string(input), "': expected ", std::string(expected), ", found ",
                   std::string(DatatypeName(found.datatype)), " [", shape, "]"));
}

absl::Status ReadKeys(const InputTensor& tensor, RowsChange* change) {
  const bool is_key = tensor.datatype == Datatype::kInt64 || tensor.datatype == Datatype::kUint64;
  if (!is_key || tensor.shape.dim_count != 1) return Wrong("keys", "INT64 or UINT64 [n]", tensor);
  change->keys.resize(tensor.bytes.size() / sizeof(Key));
  if (!change->keys.empty())
    std::memcpy(change->keys.data(), tensor.bytes.data(), tensor.bytes.size());
  return absl::OkStatus();
}

absl::Status ReadRows(const InputTensor& tensor, RowsChange* change) {
  switch (tensor.datatype) {
    case Datatype::kFp32:
      change->update.dtype = Dtype::kFloat32;
      break;
    case Datatype::kFp16:
      change->update.dtype = Dtype::kFloat16;
      break;
    case Datatype::kBf16:
      change->update.dtype = Dtype::kBfloat16;
      break;
    default:
      return Wrong("rows", "FP32, FP16 or BF16 [n, dim]", tensor);
  }
  const std::span<const int64_t> dims = tensor.shape.values();
  if (dims.size() != 2 || dims[1] > std::numeric_limits<uint32_t>::max())
    return Wrong("rows", "FP32, FP16 or BF16 [n, dim]", tensor);
  if (static_cast<uint64_t>(dims[0]) != change->keys.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", change->keys.size(), " keys and ", dims[0], " rows"));
  }
  change->update.dim = static_cast<uint32_t>(dims[1]);
  change->update.rows = tensor.bytes;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadRowsChange(std::span<const InputTensor> inputs, bool is_delete,
                            RowsChange* change) {
  const InputTensor* keys = nullptr;
  const InputTensor* rows = nullptr;
  for (const InputTensor& input : inputs) {
    const InputTensor** const known = input.name == "keys"   ? &keys
                                      : input.name == "rows" ? &rows
                                                             : nullptr;
    if (known == nullptr || *known != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", std::string(input.name),
                       "': a change of rows has the inputs 'keys' and 'rows', each once"));
    }
    *known = &input;
  }
  if (keys == nullptr || (rows == nullptr) != is_delete) {
    return absl::InvalidArgumentError(
        is_delete
            ? "a delete has the input 'keys' and no other"
            : "a change of rows has the inputs 'keys' and 'rows', or 'keys' and the parameter "
              "'delete'");
  }
  HPS_RETURN_IF_ERROR(ReadKeys(*keys, change));
  if (!is_delete) HPS_RETURN_IF_ERROR(ReadRows(*rows, change));
  change->update.keys = change->keys;
  change->update.is_delete = is_delete;
  return absl::OkStatus();
}

}  // namespace hps::server
