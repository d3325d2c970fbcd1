// Writes JSON to the end of a string: commas and quoting are its business, nesting the caller's.
//
// Rows may hold NaN and infinities: they are written as NaN, Infinity and -Infinity, as Python's
// json module reads and writes them. Not thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace hps::server {

class JsonWriter {
 public:
  explicit JsonWriter(std::string* out) : out_(out) {}

  void BeginObject() { Open('{'); }
  void EndObject() { Close('}'); }
  void BeginArray() { Open('['); }
  void EndArray() { Close(']'); }

  // The next value is this member's.
  void Key(std::string_view key) {
    String(key);
    out_->push_back(':');
    needs_comma_ = false;
  }

  // Shortest text that reads back as the same value.
  template <typename T>
  requires(std::integral<T> || std::floating_point<T>) &&
      (!std::same_as<T, bool>)void Number(T value);
  void Bool(bool value);
  void String(std::string_view text);  // UTF-8

  template <typename T>
  void Member(std::string_view key, const T& value) {
    Key(key);
    if constexpr (std::same_as<T, bool>) {
      Bool(value);
    } else if constexpr (std::integral<T> || std::floating_point<T>) {
      Number(value);
    } else {
      String(value);
    }
  }

 private:
  void Separate() {
    if (needs_comma_) out_->push_back(',');
    needs_comma_ = true;
  }
  void Open(char bracket) {
    Separate();
    out_->push_back(bracket);
    needs_comma_ = false;
  }
  void Close(char bracket) {
    out_->push_back(bracket);
    needs_comma_ = true;
  }

  std::string* const out_;
  bool needs_comma_ = false;
};

}  // namespace hps::server
