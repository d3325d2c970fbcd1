#include "import/formats/npy_table.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "hps/table_spec.h"
#include "import/formats/array_reader.h"
#include "import/formats/npy.h"
#include "types/elements.h"

namespace hps {
namespace {

absl::Status ExpectedError(const File& file, const std::string& expected,
                           const std::string& found) {
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": expected ", expected, ", found ", found));
}

// Shortens the type name of a header for messages; the header is untrusted.
std::string DescrText(const NpyHeader& header) {
  if (header.descr.empty()) return "a structured or unnamed type";
  std::string text = header.descr.substr(0, 32);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return absl::StrCat("'", text, "'");
}

absl::StatusOr<KeyDtype> KeyDtypeOf(const File& file, const NpyHeader& header) {
  if (header.descr == "<i8") return KeyDtype::kInt64;
  if (header.descr == "<u8") return KeyDtype::kUint64;
  if (header.descr == "<i4") return KeyDtype::kInt32;
  if (header.descr == "<u4") return KeyDtype::kUint32;
  return ExpectedError(file, "keys of int64, uint64, int32 or uint32 ('<i8', '<u8', '<i4', '<u4')",
                       DescrText(header));
}

absl::StatusOr<Dtype> RowDtypeOf(const File& file, const NpyHeader& header,
                                 std::optional<Dtype> dtype) {
  if (header.descr == "<f4") return Dtype::kFloat32;
  if (header.descr == "<f2") return Dtype::kFloat16;
  if (header.descr == "<u2" || header.descr == "|V2" || header.descr == "<V2") {
    if (dtype == Dtype::kBfloat16) return Dtype::kBfloat16;
    return ExpectedError(file, "elements of float32 or float16 ('<f4', '<f2')",
                         DescrText(header) + ": if these are bfloat16, say so (--dtype bfloat16)");
  }
  return ExpectedError(file, "elements of float32 or float16 ('<f4', '<f2')", DescrText(header));
}

}  // namespace

absl::StatusOr<NpyKeys> OpenNpyKeys(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(File file, File::OpenForReading(path));
  HPS_ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(file));
  HPS_ASSIGN_OR_RETURN(const KeyDtype dtype, KeyDtypeOf(file, header));
  if (header.shape.size() != 1)
    return ExpectedError(file, "an array of shape [n]", ShapeText(header.shape));
  HPS_RETURN_IF_ERROR(ValidateNpyData(file, header, KeyBytes(dtype)));
  return NpyKeys{.array = {.file = std::move(file), .offset = header.data_offset, .dtype = dtype},
                 .count = header.shape[0]};
}

absl::StatusOr<std::unique_ptr<TableReader>> OpenNpyTable(const std::string& directory,
                                                          std::optional<Dtype> dtype) {
  HPS_ASSIGN_OR_RETURN(NpyKeys keys, OpenNpyKeys(absl::StrCat(directory, "/", kNpyKeyFile)));
  HPS_ASSIGN_OR_RETURN(File rows, File::OpenForReading(absl::StrCat(directory, "/", kNpyRowFile)));
  HPS_ASSIGN_OR_RETURN(const NpyHeader row_header, ReadNpyHeader(rows));
  HPS_ASSIGN_OR_RETURN(const Dtype row_dtype, RowDtypeOf(rows, row_header, dtype));
  if (row_header.shape.size() != 2)
    return ExpectedError(rows, "an array of shape [n, dim]", ShapeText(row_header.shape));
  HPS_RETURN_IF_ERROR(ValidateNpyData(rows, row_header, ElementBytes(row_dtype)));
  const uint64_t row_count = keys.count;
  if (row_header.shape[0] != row_count) {
    return ExpectedError(
        rows, absl::StrCat(row_count, " rows, the number of keys in ", keys.array.file.path()),
        ShapeText(row_header.shape));
  }
  const uint64_t dim = row_header.shape[1];
  if (dim == 0 || dim > kDimMax)
    return ExpectedError(rows, absl::StrCat("a dim of 1 to ", kDimMax), absl::StrCat(dim));
  const TableShape shape{
      .row_count = row_count, .dim = static_cast<uint32_t>(dim), .dtype = row_dtype};
  return std::make_unique<ArrayReader>(
      shape, std::move(keys.array),
      RowArray{.file = std::move(rows), .offset = row_header.data_offset});
}

absl::StatusOr<std::vector<std::byte>> ReadNpyRow(const std::string& path, uint32_t dim,
                                                  Dtype dtype) {
  HPS_ASSIGN_OR_RETURN(const File file, File::OpenForReading(path));
  HPS_ASSIGN_OR_RETURN(const NpyHeader header, ReadNpyHeader(file));
  HPS_ASSIGN_OR_RETURN(const Dtype file_dtype, RowDtypeOf(file, header, dtype));
  const std::array<uint64_t, 1> expected = {dim};
  if (header.shape.size() != 1 || header.shape[0] != dim) {
    return ExpectedError(file, absl::StrCat("a default row of shape ", ShapeText(expected)),
                         ShapeText(header.shape));
  }
  if (!CanConvert(file_dtype, dtype))
    return ExpectedError(file, "float32 elements or the table's own type", DescrText(header));
  HPS_RETURN_IF_ERROR(ValidateNpyData(file, header, ElementBytes(file_dtype)));
  std::vector<std::byte> stored(dim * ElementBytes(file_dtype));
  HPS_RETURN_IF_ERROR(file.ReadAt(header.data_offset, stored));
  std::vector<std::byte> row(dim * ElementBytes(dtype));
  const ElementCounts counts = ConvertElements(file_dtype, stored, dtype, row);
  if (counts.overflowed != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": ", counts.overflowed, " of ", dim, " elements exceed the range of ",
        std::string(DtypeName(dtype)), " and would become infinite"));
  }
  return row;
}

}  // namespace hps
