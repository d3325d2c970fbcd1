// Writes one JSON text piece by piece to a stdio stream, without holding it in memory.
//
// Floating point numbers round-trip; NaN, Infinity and -Infinity are written bare. Strings are
// UTF-8; a byte that is not part of a valid sequence becomes U+FFFD. Calls must nest properly.
// For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace hps::cli {

// Bytes of the valid UTF-8 sequence at the start of `text`, 0 when there is none (RFC 3629: no
// overlong forms, no surrogates, nothing above U+10FFFF). REQUIRES: text is not empty.
size_t Utf8SequenceBytes(std::string_view text);

// A float32 as JsonWriter writes it: the shortest decimal that reads back as the same value.
std::string FormatFloat(float value);

class JsonWriter {
 public:
  explicit JsonWriter(std::FILE* out) : out_(out) {}
  JsonWriter(const JsonWriter&) = delete;
  JsonWriter& operator=(const JsonWriter&) = delete;

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }

  // The name of the member that comes next.
  JsonWriter& Name(std::string_view name);

  JsonWriter& Value(std::string_view text);
  JsonWriter& Value(const char* text) { return Value(std::string_view(text)); }
  JsonWriter& Value(bool value);
  JsonWriter& Value(int64_t value);
  JsonWriter& Value(uint64_t value);
  JsonWriter& Value(uint32_t value) { return Value(uint64_t{value}); }
  JsonWriter& Value(double value);
  JsonWriter& Value(float value);

  template <typename T>
  JsonWriter& Member(std::string_view name, const T& value) {
    return Name(name).Value(value);
  }

  // Writes out what is buffered. False when the stream has failed.
  bool Flush();

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  JsonWriter& Raw(std::string_view text);
  void AppendQuoted(std::string_view text);
  void Separate();

  std::FILE* const out_;
  std::string buffer_;
  bool needs_comma_ = false;
  bool failed_ = false;
};

}  // namespace hps::cli
