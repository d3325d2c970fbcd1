#include "import/formats/safetensors_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "hps/table_spec.h"
#include "import/formats/array_reader.h"
#include "import/formats/npy.h"
#include "import/formats/safetensors.h"
#include "types/names.h"

namespace hps {
namespace {

constexpr char kKeyTensor[] = "keys";
constexpr char kRowTensor[] = "rows";

// Maximum number of names among which a suggestion is searched. An untrusted header may have a
// million names.
constexpr size_t kNamesLookedAtMax = 1000;

std::string TensorText(const Tensor& tensor) {
  return absl::StrCat("'", tensor.dtype.substr(0, 16), "' ", ShapeText(tensor.shape));
}

absl::Status ExpectedError(const File& file, const std::string& tensor, const std::string& expected,
                           const std::string& found) {
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": tensor '", tensor, "': expected ", expected, ", found ", found));
}

absl::StatusOr<const Tensor*> FindTensor(const File& file, const SafetensorsHeader& header,
                                         const std::string& name) {
  if (const Tensor* tensor = header.Find(name); tensor != nullptr) return tensor;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(header.tensors.size(), kNamesLookedAtMax); ++i)
    names.push_back(header.tensors[i].name.substr(0, kNameBytesMax));
  return absl::NotFoundError(absl::StrCat(file.path(), ": no tensor '", name, "' among its ",
                                          header.tensors.size(), NearestNameHint(name, names)));
}

absl::StatusOr<TableShape> ShapeOf(const File& file, const Tensor& tensor) {
  TableShape shape;
  if (tensor.dtype == "F32") {
    shape.dtype = Dtype::kFloat32;
  } else if (tensor.dtype == "F16") {
    shape.dtype = Dtype::kFloat16;
  } else if (tensor.dtype == "BF16") {
    shape.dtype = Dtype::kBfloat16;
  } else {
    return ExpectedError(file, tensor.name, "elements of F32, F16 or BF16", TensorText(tensor));
  }
  if (tensor.shape.size() != 2)
    return ExpectedError(file, tensor.name, "the shape [n, dim]", TensorText(tensor));
  if (tensor.shape[1] == 0 || tensor.shape[1] > kDimMax) {
    return ExpectedError(file, tensor.name, absl::StrCat("a dim of 1 to ", kDimMax),
                         TensorText(tensor));
  }
  shape.row_count = tensor.shape[0];
  shape.dim = static_cast<uint32_t>(tensor.shape[1]);
  return shape;
}

absl::StatusOr<KeyDtype> KeyDtypeOf(const File& file, const Tensor& keys, uint64_t row_count) {
  if (keys.shape.size() != 1 || keys.shape[0] != row_count) {
    return ExpectedError(file, keys.name,
                         absl::StrCat("the shape [", row_count, "], a key per row"),
                         TensorText(keys));
  }
  if (keys.dtype == "I64") return KeyDtype::kInt64;
  if (keys.dtype == "U64") return KeyDtype::kUint64;
  if (keys.dtype == "I32") return KeyDtype::kInt32;
  if (keys.dtype == "U32") return KeyDtype::kUint32;
  return ExpectedError(file, keys.name, "keys of I64, U64, I32 or U32", TensorText(keys));
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableReader>> OpenSafetensorsTable(
    const std::string& path, const std::optional<std::string>& tensor) {
  HPS_ASSIGN_OR_RETURN(File file, File::OpenForReading(path));
  HPS_ASSIGN_OR_RETURN(const SafetensorsHeader header, ReadSafetensorsHeader(file));
  HPS_ASSIGN_OR_RETURN(const Tensor* rows, FindTensor(file, header, tensor.value_or(kRowTensor)));
  HPS_ASSIGN_OR_RETURN(const TableShape shape, ShapeOf(file, *rows));
  std::optional<KeyArray> key_array;
  if (!tensor.has_value()) {
    HPS_ASSIGN_OR_RETURN(const Tensor* keys, FindTensor(file, header, kKeyTensor));
    HPS_ASSIGN_OR_RETURN(const KeyDtype dtype, KeyDtypeOf(file, *keys, shape.row_count));
    HPS_ASSIGN_OR_RETURN(File key_file, file.Duplicate());
    key_array = {
        .file = std::move(key_file), .offset = header.data_offset + keys->begin, .dtype = dtype};
  }
  const uint64_t rows_offset = header.data_offset + rows->begin;
  return std::make_unique<ArrayReader>(shape, std::move(key_array),
                                       RowArray{.file = std::move(file), .offset = rows_offset});
}

}  // namespace hps
