// Little-endian fields for the records of the catalog, of staged imports and of parked messages.
//
// A reader never reads beyond its bytes. If a field does not fit, the reader becomes bad, and this
// field and all later ones read as zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace hps {

class RecordWriter {
 public:
  template <typename T>
  RecordWriter& Add(T value) {
    char bytes[sizeof(T)];
    StoreLittleEndian<T>(bytes, value);
    text_.append(bytes, sizeof(T));
    return *this;
  }
  // Adds a length of four bytes, then the bytes.
  RecordWriter& AddText(std::string_view text) {
    Add(static_cast<uint32_t>(text.size()));
    text_.append(text);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class RecordReader {
 public:
  explicit RecordReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Take() {
    if (bytes_.size() < sizeof(T)) {
      SetBad();
      return T{};
    }
    const T value = LoadLittleEndian<T>(bytes_.data());
    bytes_.remove_prefix(sizeof(T));
    return value;
  }
  std::string_view TakeText() {
    const uint32_t length = Take<uint32_t>();
    if (bytes_.size() < length) {
      SetBad();
      return {};
    }
    const std::string_view text = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return text;
  }
  // Bytes that remain.
  size_t size() const { return bytes_.size(); }
  // True if every field so far fitted.
  bool good() const { return !bad_; }
  // True if every field fitted and no bytes remain.
  bool AtEnd() const { return !bad_ && bytes_.empty(); }

 private:
  void SetBad() {
    bad_ = true;
    bytes_ = {};
  }

  std::string_view bytes_;
  bool bad_ = false;
};

}  // namespace hps
