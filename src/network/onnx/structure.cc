#include "network/onnx/structure.h"

#include <google/protobuf/io/coded_stream.h>

#include <array>

#include "base/bytes.h"

namespace hps {
namespace {

using google::protobuf::io::CodedInputStream;

enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

constexpr uint32_t MessageTag(uint32_t field) { return field << 3 | kLengthDelimited; }

// The way to a tensor's data, by the field numbers of onnx-ml.proto: the graph of a model, the
// initializers of a graph, the raw data of a tensor.
constexpr std::array kWay = {MessageTag(7), MessageTag(5), MessageTag(9)};

// Reads a field up to its content, of `size` bytes, or all of it. False: it is malformed.
bool ReadSize(CodedInputStream& message, uint32_t tag, int* size) {
  uint64_t ignored = 0;
  *size = 0;
  switch (tag & 7) {
    case kVarint:
      return message.ReadVarint64(&ignored);
    case kFixed64:
      *size = 8;
      return true;
    case kFixed32:
      *size = 4;
      return true;
    case kLengthDelimited:
      return message.ReadVarintSizeAsInt(size);
    default:
      return false;  // groups
  }
}

// Adds up the weights in `message`, which lies `depth` messages deep on the way to a tensor's data.
// False: it is malformed.
bool AddWeights(CodedInputStream& message, size_t depth, uint64_t& bytes) {
  while (const uint32_t tag = message.ReadTag()) {
    int size = 0;
    if (!ReadSize(message, tag, &size) || size > message.BytesUntilLimit()) return false;
    if (tag == kWay[depth] && depth + 1 < kWay.size()) {
      const CodedInputStream::Limit limit = message.PushLimit(size);
      if (!AddWeights(message, depth + 1, bytes)) return false;
      message.PopLimit(limit);
    } else {
      if (tag == kWay[depth]) bytes += static_cast<uint64_t>(size);
      if (!message.Skip(size)) return false;
    }
  }
  return message.ConsumedEntireMessage();
}

}  // namespace

absl::StatusOr<uint64_t> OnnxStructureBytes(std::span<const std::byte> file) {
  CodedInputStream message(AsAligned<uint8_t>(file.data()), static_cast<int>(file.size()));
  uint64_t weights = 0;
  if (!AddWeights(message, 0, weights))
    return absl::InvalidArgumentError(
        "it is not an ONNX model: its bytes are not a protobuf message");
  return file.size() - weights;
}

}  // namespace hps
