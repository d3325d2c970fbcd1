// Writes one JSON text piece by piece: to the end of a string, or to a stdio stream without holding
// it in memory.
//
// The writer adds the commas and quotes strings; the caller nests its calls properly. Floating
// point numbers are the shortest text that reads back as the same value. JSON has neither NaN nor
// infinities: they are written as null or as strings. Strings become valid UTF-8
// (AppendJsonString).
//
// Not thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace hps {

// A float32 as JsonWriter writes it; NaN, Infinity or -Infinity without quotes.
std::string FormatFloat(float value);

enum class NonFinite : uint8_t { kNull, kText };  // null; "NaN", "Infinity", "-Infinity"

class JsonWriter {
 public:
  // Appends to `out`, which outlives the writer. Allocates only what `out` needs to grow.
  explicit JsonWriter(std::string* out, NonFinite non_finite = NonFinite::kNull)
      : out_(out), non_finite_(non_finite) {}
  // Call Flush at the end.
  explicit JsonWriter(std::FILE* stream, NonFinite non_finite = NonFinite::kNull)
      : out_(&buffer_), stream_(stream), non_finite_(non_finite) {}
  JsonWriter(const JsonWriter&) = delete;
  JsonWriter& operator=(const JsonWriter&) = delete;

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }

  // The name of the member whose value comes next.
  JsonWriter& Name(std::string_view name);

  JsonWriter& Value(std::string_view text);
  template <typename T>
  requires(std::integral<T> || std::floating_point<T>) JsonWriter& Value(T value) {
    if constexpr (std::same_as<T, bool>) {
      return WriteBool(value);
    } else if constexpr (std::signed_integral<T>) {
      return WriteNumber(int64_t{value});
    } else if constexpr (std::unsigned_integral<T>) {
      return WriteNumber(uint64_t{value});
    } else {
      return WriteNumber(value);
    }
  }

  // A document in memory without null, as nlohmann::ordered_json.
  template <typename Document>
  requires requires(const Document& document) { document.is_object(); }
  JsonWriter& Value(const Document& document);

  template <typename T>
  JsonWriter& Member(std::string_view name, const T& value) {
    return Name(name).Value(value);
  }

  // Writes out what the stream has not got yet. False when the stream has failed.
  // REQUIRES: made for a stream.
  bool Flush();

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  JsonWriter& WriteBool(bool value);
  template <typename T>
  JsonWriter& WriteNumber(T value);  // int64_t, uint64_t, float or double
  void BeginValue();
  JsonWriter& EndValue();

  std::string buffer_;  // for the stream
  std::string* const out_;
  std::FILE* const stream_ = nullptr;  // null: `out_` is the caller's
  const NonFinite non_finite_;
  bool needs_comma_ = false;
  bool failed_ = false;
};

template <typename Document>
requires requires(const Document& document) { document.is_object(); }
JsonWriter& JsonWriter::Value(const Document& document) {
  if (document.is_object()) {
    BeginObject();
    for (const auto& [name, member] : document.items()) Member(name, member);
    return EndObject();
  }
  if (document.is_array()) {
    BeginArray();
    for (const Document& element : document) Value(element);
    return EndArray();
  }
  if (document.is_boolean()) return Value(document.template get<bool>());
  if (document.is_number_unsigned()) return Value(document.template get<uint64_t>());
  if (document.is_number_integer()) return Value(document.template get<int64_t>());
  if (document.is_number()) return Value(document.template get<double>());
  return Value(std::string_view(document.template get_ref<const std::string&>()));
}

}  // namespace hps
