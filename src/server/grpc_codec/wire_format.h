// The protobuf wire format, read from and written to plain memory, without protobuf.
//
// A reader never reads outside its bytes, never allocates, and takes what any protobuf encoder may
// write: fields in any order, unknown fields, padded varints. Groups, which proto3 does not have,
// are malformed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace hps::server {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Every Read and Next returns false at the end of the bytes or where they are malformed;
// malformed() tells which. After that, nothing more is read.
class WireReader {
 public:
  // `fields_left`: how many fields may be looked at, of this reader and of all that share it; null:
  // as many as there are. Where none is left, there is no next one.
  explicit WireReader(std::span<const std::byte> bytes, size_t* fields_left = nullptr)
      : rest_(bytes), fields_left_(fields_left) {}

  bool malformed() const { return malformed_; }
  bool empty() const { return rest_.empty(); }

  // The next field's number and type. Its value must be read or skipped before the next one.
  bool Next(uint32_t* field, WireType* type) {
    if (malformed_ || rest_.empty()) return false;
    if (fields_left_ != nullptr) {
      if (*fields_left_ == 0) return false;
      --*fields_left_;
    }
    uint64_t tag = 0;
    if (!ReadVarint(&tag)) return false;
    const uint64_t wire_type = tag & 7;
    const bool known = wire_type == 0 || wire_type == 1 || wire_type == 2 || wire_type == 5;
    if (!known || tag >> 3 == 0 || tag >> 3 > kFieldMax) return Fail();
    *field = static_cast<uint32_t>(tag >> 3);
    *type = static_cast<WireType>(wire_type);
    return true;
  }

  bool ReadVarint(uint64_t* value) {
    uint64_t result = 0;
    for (size_t i = 0; i < kVarintBytesMax && i < rest_.size(); ++i) {
      const auto byte = static_cast<uint64_t>(rest_[i]);
      result |= (byte & 0x7f) << (7 * i);
      if (byte < 0x80) {
        rest_ = rest_.subspan(i + 1);
        *value = result;
        return true;
      }
    }
    return Fail();
  }
  bool ReadBytes(std::span<const std::byte>* bytes) {
    uint64_t size = 0;
    return ReadVarint(&size) && ReadFixed(size, bytes);
  }
  bool ReadText(std::string_view* text) {
    std::span<const std::byte> bytes;
    if (!ReadBytes(&bytes)) return false;
    *text = AsText(bytes);
    return true;
  }
  bool ReadFixed(uint64_t size, std::span<const std::byte>* bytes) {
    if (malformed_ || size > rest_.size()) return Fail();
    *bytes = rest_.first(size);
    rest_ = rest_.subspan(size);
    return true;
  }

  // Skips the value of a field of this type.
  bool Skip(WireType type) {
    uint64_t number = 0;
    std::span<const std::byte> bytes;
    switch (type) {
      case WireType::kVarint:
        return ReadVarint(&number);
      case WireType::kFixed64:
        return ReadFixed(8, &bytes);
      case WireType::kFixed32:
        return ReadFixed(4, &bytes);
      case WireType::kBytes:
        return ReadBytes(&bytes);
    }
    return Fail();
  }

  // Always false, so that a caller who found the bytes to be wrong can return it.
  bool Fail() {
    malformed_ = true;
    rest_ = {};
    return false;
  }

 private:
  static constexpr size_t kVarintBytesMax = 10;
  static constexpr uint64_t kFieldMax = (uint64_t{1} << 29) - 1;

  std::span<const std::byte> rest_;
  size_t* fields_left_;
  bool malformed_ = false;
};

inline size_t VarintBytes(uint64_t value) {
  return 1 + static_cast<size_t>(63 - __builtin_clzll(value | 1)) / 7;
}

inline void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}
inline void AppendTag(uint32_t field, WireType type, std::string* out) {
  AppendVarint(field << 3 | static_cast<uint32_t>(type), out);
}
// The tag and the length of a field whose bytes follow.
inline void AppendLength(uint32_t field, uint64_t size, std::string* out) {
  AppendTag(field, WireType::kBytes, out);
  AppendVarint(size, out);
}
inline void AppendText(uint32_t field, std::string_view text, std::string* out) {
  AppendLength(field, text.size(), out);
  out->append(text);
}

}  // namespace hps::server
