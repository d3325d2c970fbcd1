// Reads JSON in one pass, in place, without memory of its own: hostile text costs the time to read
// it once and nothing else.
//
// A cursor over the text: the caller asks for what it expects, and the first thing that is not so
// ends everything: from then on every call returns false and status() says what was expected where.
// Strings are unescaped in the text itself, so the views that ReadString gives live as long as it.
// Nesting is bounded. NaN, Infinity and -Infinity are numbers.
//
//   if (reader.BeginObject())
//     while (reader.NextMember(&key)) ...read one value...;
//   return reader.Finish();
//
// Errors (status): INVALID_ARGUMENT for what does not parse or is of another kind; OUT_OF_RANGE for
// nesting beyond the limit. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace hps::server {

enum class JsonKind : uint8_t { kObject, kArray, kString, kNumber, kBool, kNull, kEnd, kOther };

class JsonReader {
 public:
  static constexpr size_t kDepthMax = 32;

  explicit JsonReader(std::span<char> text) : JsonReader(text, text.data()) {}
  // `text` is one value of the JSON that begins at `begin`, from where messages count bytes.
  JsonReader(std::span<char> text, const char* begin)
      : begin_(begin), at_(text.data()), end_(text.data() + text.size()) {}

  JsonKind Peek();  // of the next value; kEnd when only blanks are left

  bool BeginObject();
  bool NextMember(std::string_view* key);  // false: the object has ended, or an error
  bool BeginArray();
  bool NextElement();  // false: the array has ended, or an error

  bool ReadString(std::string_view* value);  // valid UTF-8
  bool ReadBool(bool* value);
  bool ReadInt64(int64_t* value);
  bool ReadUint64(uint64_t* value);
  // The text of a number, checked to be one.
  bool ReadNumber(std::string_view* text);

  // Passes over one value, checking it; `raw` is its text, for another reader.
  bool SkipValue(std::span<char>* raw);
  bool SkipValue() {
    std::span<char> raw;
    return SkipValue(&raw);
  }

  // Nothing but blanks may follow. Returns status().
  absl::Status Finish();

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

  // Ends everything with this error, unless there is one already; returns false.
  bool Fail(absl::Status status);

 private:
  void SkipBlanks();
  bool Expected(std::string_view what);
  bool ExpectedKind(std::string_view what);
  bool Enter();
  bool NextItem(char closing);
  bool Unescape(char** to);
  bool UnescapeUnicode(char** to);
  bool ReadHex4(uint32_t* code);
  bool SkipString();
  bool SkipScalar();
  bool Literal(std::string_view word);
  template <typename Integer>
  bool ReadInteger(std::string_view what, Integer* value);  // `what`: for messages

  const char* const begin_;
  char* at_;
  char* const end_;
  size_t depth_ = 0;
  bool first_ = true;  // of the container that was entered last
  absl::Status status_;
};

// Whether `text` is well-formed UTF-8.
bool IsUtf8(std::string_view text);

}  // namespace hps::server
