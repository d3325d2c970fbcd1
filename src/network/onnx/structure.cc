#include "network/onnx/structure.h"

#include <optional>

#include "base/macros.h"

namespace hps {
namespace {

// Field numbers of onnx-ml.proto.
constexpr uint64_t kModelGraph = 7;
constexpr uint64_t kGraphInitializer = 5;
constexpr uint64_t kTensorRawData = 9;

enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

// Steps over the fields of one message.
class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> message) : rest_(message) {}

  bool at_end() const { return rest_.empty(); }
  uint64_t field() const { return field_; }
  bool is_message() const { return type_ == kLengthDelimited; }
  std::span<const std::byte> content() const { return content_; }

  // False: the message is malformed.
  bool Next() {
    const std::optional<uint64_t> tag = TakeVarint();
    if (!tag.has_value()) return false;
    field_ = *tag >> 3;
    type_ = static_cast<uint8_t>(*tag & 7);
    switch (type_) {
      case kVarint:
        return TakeVarint().has_value();
      case kFixed64:
        return Take(8);
      case kFixed32:
        return Take(4);
      case kLengthDelimited: {
        const std::optional<uint64_t> size = TakeVarint();
        return size.has_value() && Take(*size);
      }
      default:
        return false;  // groups
    }
  }

 private:
  std::optional<uint64_t> TakeVarint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint64_t>(rest_.front());
      rest_ = rest_.subspan(1);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  bool Take(uint64_t size) {
    if (size > rest_.size()) return false;
    content_ = rest_.first(size);
    rest_ = rest_.subspan(size);
    return true;
  }

  std::span<const std::byte> rest_;
  std::span<const std::byte> content_;
  uint64_t field_ = 0;
  uint8_t type_ = kVarint;
};

// Adds up the weights in `message`, which lies `depth` messages deep on the way to a tensor's data.
bool AddWeights(std::span<const std::byte> message, size_t depth, uint64_t& bytes) {
  constexpr uint64_t kWay[] = {kModelGraph, kGraphInitializer, kTensorRawData};
  FieldReader reader(message);
  while (!reader.at_end()) {
    if (!reader.Next()) return false;
    if (reader.field() != kWay[depth] || !reader.is_message()) continue;
    if (depth == 2) {
      bytes += reader.content().size();
    } else if (!AddWeights(reader.content(), depth + 1, bytes)) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<uint64_t> OnnxStructureBytes(std::span<const std::byte> file) {
  uint64_t weights = 0;
  if (!AddWeights(file, 0, weights))
    return absl::InvalidArgumentError(
        "it is not an ONNX model: its bytes are not a protobuf message");
  return file.size() - weights;
}

}  // namespace hps
