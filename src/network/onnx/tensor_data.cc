#include "network/onnx/tensor_data.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "network/onnx/graph.h"
#include "onnx/onnx-ml.pb.h"

namespace hps {
namespace {

absl::Status Refused(const ::onnx::TensorProto& tensor, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor.name(), "': ", what));
}

absl::StatusOr<uint64_t> ByteCount(const ::onnx::TensorProto& tensor) {
  const size_t element_bytes = OnnxElementBytes(tensor.data_type());
  if (element_bytes == 0) {
    return Refused(
        tensor, absl::StrCat("elements of ONNX type ", tensor.data_type(), " are not supported"));
  }
  if (tensor.dims_size() > kOnnxDimsMax) {
    return Refused(tensor,
                   absl::StrCat(tensor.dims_size(), " dimensions; the maximum is ", kOnnxDimsMax));
  }
  std::optional<uint64_t> bytes = element_bytes;
  for (const int64_t dim : tensor.dims()) {
    if (dim < 0) return Refused(tensor, absl::StrCat("a dimension of ", dim));
    bytes = CheckedMultiply(*bytes, static_cast<uint64_t>(dim));
    if (!bytes.has_value()) return Refused(tensor, "its shape is beyond 64 bits");
  }
  return *bytes;
}

absl::Status WrongSize(const ::onnx::TensorProto& tensor, uint64_t expected, uint64_t found) {
  return Refused(tensor, absl::StrCat("its shape needs ", expected, " bytes, it has ", found));
}

// Appends numbers of a typed field, each narrowed to the tensor's element, which ONNX lets
// int32_data hold for all small types.
template <typename Field>
void AppendNumbers(const Field& field, size_t element_bytes, std::string& to) {
  for (const auto number : field) {
    char bytes[sizeof(number)];
    std::memcpy(bytes, &number, sizeof(number));
    to.append(bytes, std::min(element_bytes, sizeof(number)));
  }
}

std::string TypedBytes(const ::onnx::TensorProto& tensor) {
  const size_t element_bytes = OnnxElementBytes(tensor.data_type());
  std::string bytes;
  switch (static_cast<OnnxElement>(tensor.data_type())) {
    case OnnxElement::kFloat32:
      AppendNumbers(tensor.float_data(), element_bytes, bytes);
      break;
    case OnnxElement::kFloat64:
      AppendNumbers(tensor.double_data(), element_bytes, bytes);
      break;
    case OnnxElement::kInt64:
      AppendNumbers(tensor.int64_data(), element_bytes, bytes);
      break;
    default:
      AppendNumbers(tensor.int32_data(), element_bytes, bytes);
      break;
  }
  return bytes;
}

struct ExternalPlace {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

absl::StatusOr<ExternalPlace> ReadPlace(const ::onnx::TensorProto& tensor) {
  ExternalPlace place;
  for (const ::onnx::StringStringEntryProto& entry : tensor.external_data()) {
    if (entry.key() == "location") place.location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length") continue;
    uint64_t number = 0;
    const std::string& text = entry.value();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size())
      return Refused(tensor, absl::StrCat("the ", entry.key(), " of its data is not a number"));
    (entry.key() == "offset" ? place.offset : place.length.emplace()) = number;
  }
  if (place.location.empty()) return Refused(tensor, "the file of its data is not named");
  return place;
}

// The file's path without links. It must lie in the folder, so that a model can't read others.
absl::StatusOr<std::filesystem::path> ResolveInside(const ::onnx::TensorProto& tensor,
                                                    const std::string& folder,
                                                    const std::string& location) {
  std::error_code error;
  const std::filesystem::path inside = std::filesystem::canonical(folder, error);
  if (error) return Refused(tensor, "the model's folder can't be read");
  const std::filesystem::path path = std::filesystem::canonical(inside / location, error);
  if (error) {
    return absl::NotFoundError(absl::StrCat("tensor '", tensor.name(), "': its data '", location,
                                            "' is not beside the model"));
  }
  const auto [end, rest] = std::mismatch(inside.begin(), inside.end(), path.begin(), path.end());
  if (end != inside.end() || rest == path.end()) {
    return Refused(tensor, absl::StrCat("its data '", location, "' is outside the model's folder"));
  }
  if (!std::filesystem::is_regular_file(path, error))
    return Refused(tensor, absl::StrCat("its data '", location, "' is not a regular file"));
  return path;
}

absl::Status ReadExternal(const std::string& folder, uint64_t byte_count,
                          ::onnx::TensorProto& tensor) {
  if (folder.empty()) return Refused(tensor, "its data is in another file");
  HPS_ASSIGN_OR_RETURN(const ExternalPlace place, ReadPlace(tensor));
  if (place.length.has_value() && *place.length != byte_count)
    return WrongSize(tensor, byte_count, *place.length);
  HPS_ASSIGN_OR_RETURN(const std::filesystem::path path,
                       ResolveInside(tensor, folder, place.location));
  std::error_code error;
  const uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error || place.offset > file_bytes || byte_count > file_bytes - place.offset) {
    return Refused(tensor,
                   absl::StrCat("its data needs ", byte_count, " bytes at offset ", place.offset,
                                " of '", place.location, "', which has ", error ? 0 : file_bytes));
  }
  std::string& bytes = *tensor.mutable_raw_data();
  bytes.resize(byte_count);
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(place.offset));
  file.read(bytes.data(), static_cast<std::streamsize>(byte_count));
  if (file) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("tensor '", tensor.name(), "': its data '", place.location, "' can't be read"));
}

}  // namespace

absl::Status NormalizeTensor(const std::string& folder, ::onnx::TensorProto& tensor,
                             uint64_t& bytes_left) {
  HPS_ASSIGN_OR_RETURN(const uint64_t byte_count, ByteCount(tensor));
  if (tensor.has_segment()) return Refused(tensor, "it is a part of a tensor");
  if (tensor.data_location() == ::onnx::TensorProto::EXTERNAL) {
    if (byte_count > bytes_left) {
      return absl::OutOfRangeError(
          absl::StrCat("tensor '", tensor.name(), "': the model's weights are over the limit"));
    }
    bytes_left -= byte_count;
    HPS_RETURN_IF_ERROR(ReadExternal(folder, byte_count, tensor));
    tensor.clear_external_data();
    tensor.clear_data_location();
  } else if (!tensor.has_raw_data()) {
    tensor.set_raw_data(TypedBytes(tensor));
    tensor.clear_float_data();
    tensor.clear_double_data();
    tensor.clear_int32_data();
    tensor.clear_int64_data();
  }
  if (tensor.raw_data().size() == byte_count) return absl::OkStatus();
  return WrongSize(tensor, byte_count, tensor.raw_data().size());
}

}  // namespace hps
