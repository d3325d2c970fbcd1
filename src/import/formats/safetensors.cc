#include "import/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/macros.h"
#include "import/formats/npy.h"

namespace hps {
namespace {

// Quotes text of an untrusted header in an error: short and printable.
std::string Quoted(std::string_view text) {
  std::string shown(text.substr(0, 64));
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '?';
  }
  return absl::StrCat("'", shown, text.size() > 64 ? "...'" : "'");
}

// The only entry of a header that is not a tensor.
constexpr std::string_view kMetadataName = "__metadata__";

// Handles the events of the JSON parser. Depth 1: names, 2: fields of a tensor, 3: arrays in it.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Tensor> TakeTensors() { return std::move(tensors_); }
  const std::string& error() const { return error_; }

  bool null() override { return Fail("null"); }
  bool boolean(bool) override { return Fail("a boolean"); }
  bool number_integer(number_integer_t) override { return Fail("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Fail("a fraction"); }
  bool binary(binary_t&) override { return Fail("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3 || in_metadata_) return Fail("a number");
    if (field_ == Field::kShape) {
      if (tensors_.back().shape.size() == kSafetensorsRankMax)
        return Fail("more than 8 dimensions");
      tensors_.back().shape.push_back(value);
      return true;
    }
    if (offset_count_ == 2) return Fail("more than two offsets");
    (offset_count_++ == 0 ? tensors_.back().begin : tensors_.back().end) = value;
    return true;
  }

  bool string(string_t& value) override {
    if (in_metadata_ && depth_ == 2) return true;
    if (depth_ != 2 || field_ != Field::kDtype) return Fail("a string");
    tensors_.back().dtype = std::move(value);
    return true;
  }

  bool start_object(size_t) override {
    if (depth_ > 1 || (depth_ == 1 && name_.empty() && !named_)) return Fail("an object");
    ++depth_;
    if (depth_ != 2) return true;
    in_metadata_ = name_ == kMetadataName;
    if (in_metadata_) return true;
    if (tensors_.size() == kSafetensorsTensorsMax) return Fail("more than 2^20 tensors");
    tensors_.push_back({.name = name_});
    has_field_ = {};
    offset_count_ = 0;
    return true;
  }

  bool key(string_t& name) override {
    if (depth_ == 1) {
      named_ = true;
      name_ = std::move(name);
      return names_.insert(name_).second || Fail("a second entry of that name");
    }
    if (in_metadata_) return true;
    field_ = name == "dtype"          ? Field::kDtype
             : name == "shape"        ? Field::kShape
             : name == "data_offsets" ? Field::kOffsets
                                      : Field::kUnknown;
    if (field_ == Field::kUnknown) return Fail("the field " + Quoted(name));
    bool& seen = has_field_[static_cast<size_t>(field_)];
    return !std::exchange(seen, true) || Fail("the field " + Quoted(name) + " twice");
  }

  bool end_object() override {
    --depth_;
    if (depth_ != 1) return true;
    const bool complete = std::all_of(has_field_.begin(), has_field_.end(), std::identity());
    if (!in_metadata_ && (!complete || offset_count_ != 2))
      return Fail("a tensor without dtype, shape and two data_offsets");
    in_metadata_ = false;
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || (field_ != Field::kShape && field_ != Field::kOffsets))
      return Fail("an array");
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    error_ = absl::StrCat("header byte ", position, ": expected JSON");
    return false;
  }

 private:
  enum class Field { kDtype, kShape, kOffsets, kUnknown };

  bool Fail(const std::string& found) {
    const char* const expected = name_ == kMetadataName
                                     ? "an object of strings"
                                     : "a tensor's \"dtype\", \"shape\" and \"data_offsets\"";
    error_ =
        absl::StrCat("header entry ", Quoted(name_), ": expected ", expected, ", found ", found);
    return false;
  }

  std::vector<Tensor> tensors_;
  std::string error_;
  size_t depth_ = 0;
  bool named_ = false;
  std::string name_;
  absl::flat_hash_set<std::string> names_;
  bool in_metadata_ = false;
  Field field_ = Field::kUnknown;
  std::array<bool, 3> has_field_{};
  size_t offset_count_ = 0;
};

// Returns nullopt for an unknown type; tensors of such types are not checked.
std::optional<uint64_t> TensorElementBytes(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  return std::nullopt;
}

absl::Status ValidateTensor(const Tensor& tensor, uint64_t data_bytes) {
  const auto error = [&](const std::string& expected, const std::string& found) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", Quoted(tensor.name), ": expected ", expected, ", found ", found));
  };
  const std::string offsets = absl::StrCat("[", tensor.begin, ", ", tensor.end, "]");
  if (tensor.begin > tensor.end || tensor.end > data_bytes) {
    return error(absl::StrCat("data_offsets inside the ", data_bytes, " bytes after the header"),
                 offsets);
  }
  std::optional<uint64_t> bytes = TensorElementBytes(tensor.dtype);
  if (!bytes.has_value()) return absl::OkStatus();
  for (const uint64_t number : tensor.shape) {
    if (bytes.has_value()) bytes = CheckedMultiply(*bytes, number);
  }
  if (bytes == tensor.end - tensor.begin) return absl::OkStatus();
  return error(absl::StrCat(ShapeText(tensor.shape), " elements of ", Quoted(tensor.dtype), " = ",
                            bytes.has_value() ? absl::StrCat(*bytes) : "more than 2^64", " bytes"),
               absl::StrCat(tensor.end - tensor.begin, " bytes at data_offsets ", offsets));
}

// The bytes of the tensors must cover the file from the end of the header without holes.
absl::Status ValidateCoverage(const std::vector<Tensor>& tensors, uint64_t data_bytes) {
  std::vector<const Tensor*> ordered;
  ordered.reserve(tensors.size());
  for (const Tensor& tensor : tensors) ordered.push_back(&tensor);
  std::sort(ordered.begin(), ordered.end(), [](const Tensor* a, const Tensor* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  uint64_t covered = 0;
  for (const Tensor* tensor : ordered) {
    if (tensor->begin != covered) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(tensor->name), ": expected data_offsets that begin at ",
                       covered, ", where the previous tensor ends, found ", tensor->begin,
                       tensor->begin < covered ? ": the two overlap" : ": a hole"));
    }
    covered = tensor->end;
  }
  if (covered == data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", covered, " bytes of tensors after the header, found ", data_bytes));
}

absl::Status Validate(const std::vector<Tensor>& tensors, uint64_t data_bytes) {
  for (const Tensor& tensor : tensors) HPS_RETURN_IF_ERROR(ValidateTensor(tensor, data_bytes));
  return ValidateCoverage(tensors, data_bytes);
}

absl::Status InFile(const File& file, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(file.path(), ": ", status.message()));
}

}  // namespace

const Tensor* SafetensorsHeader::Find(std::string_view name) const {
  for (const Tensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

absl::StatusOr<std::vector<Tensor>> ParseSafetensorsJson(std::string_view json) {
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &handler))
    return absl::InvalidArgumentError(handler.error());
  return handler.TakeTensors();
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const File& file) {
  constexpr uint64_t kLengthBytes = sizeof(uint64_t);
  const uint64_t file_bytes = file.bytes_at_open();
  if (file_bytes < kLengthBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": expected a safetensors file of at least 8 bytes, found ", file_bytes));
  }
  uint64_t header_bytes = 0;
  HPS_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  const uint64_t header_bytes_max = std::min(kSafetensorsHeaderBytesMax, file_bytes - kLengthBytes);
  if (header_bytes > header_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": expected a safetensors header of at most ", header_bytes_max,
                     " bytes, found a length of ", header_bytes));
  }
  std::string json(header_bytes, '\0');
  HPS_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, std::as_writable_bytes(std::span(json))));
  SafetensorsHeader header{.tensors = {}, .data_offset = kLengthBytes + header_bytes};
  absl::StatusOr<std::vector<Tensor>> tensors = ParseSafetensorsJson(json);
  if (!tensors.ok()) return InFile(file, tensors.status());
  header.tensors = *std::move(tensors);
  const absl::Status valid = Validate(header.tensors, file_bytes - header.data_offset);
  if (!valid.ok()) return InFile(file, valid);
  return header;
}

}  // namespace hps
