#include "server/http/json_reader.h"

#include <charconv>
#include <cstring>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace hps::server {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Length of the number at the beginning of `text` by JSON's grammar; 0 when there is none.
size_t NumberLength(std::string_view text) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t first = i;
    while (i < text.size() && IsDigit(text[i])) ++i;
    return i - first;
  };
  if (i < text.size() && text[i] == '-') ++i;
  for (const std::string_view word : {std::string_view("NaN"), std::string_view("Infinity")}) {
    if (text.substr(i, word.size()) == word && !(i == 1 && word == "NaN")) return i + word.size();
  }
  const size_t integer_begin = i;
  const size_t integer_digits = digits();
  if (integer_digits == 0 || (integer_digits > 1 && text[integer_begin] == '0')) return 0;
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (digits() == 0) return 0;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) return 0;
  }
  return i;
}

// Bytes of the UTF-8 sequence at `text`, or 0.
size_t SequenceLength(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && (at(i) & 0xc0) == 0x80; };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4 || !continues(1)) return 0;
  if (lead < 0xe0) return 2;
  if (!continues(2)) return 0;
  if (lead < 0xf0) {
    const bool overlong = lead == 0xe0 && at(1) < 0xa0;
    const bool surrogate = lead == 0xed && at(1) > 0x9f;
    return overlong || surrogate ? 0 : 3;
  }
  if (!continues(3) || (lead == 0xf0 && at(1) < 0x90) || (lead == 0xf4 && at(1) > 0x8f)) return 0;
  return 4;
}

char* AppendUtf8(uint32_t code, char* to) {
  const auto put = [&](uint32_t byte) { *to++ = static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
  return to;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool JsonReader::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
  at_ = end_;
  return false;
}

bool JsonReader::Expected(std::string_view what) {
  if (!ok()) return false;
  return Fail(absl::InvalidArgumentError(absl::StrCat(
      "the JSON does not parse: expected ", absl::string_view(what.data(), what.size()),
      " at byte ", at_ - begin_, at_ == end_ ? ", where it ends" : "")));
}

// As Expected, where a value of another kind may be, which does parse.
bool JsonReader::ExpectedKind(std::string_view what) {
  static constexpr const char* kFound[] = {"an object", "an array",      "a string",
                                           "a number",  "true or false", "null"};
  const auto kind = static_cast<size_t>(Peek());
  if (!ok() || kind >= std::size(kFound)) return Expected(what);
  return Fail(absl::InvalidArgumentError(
      absl::StrCat("expected ", absl::string_view(what.data(), what.size()), " at byte ",
                   at_ - begin_, " of the JSON, found ", kFound[kind])));
}

void JsonReader::SkipBlanks() {
  while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
}

JsonKind JsonReader::Peek() {
  SkipBlanks();
  if (at_ == end_) return JsonKind::kEnd;
  switch (*at_) {
    case '{':
      return JsonKind::kObject;
    case '[':
      return JsonKind::kArray;
    case '"':
      return JsonKind::kString;
    case 't':
    case 'f':
      return JsonKind::kBool;
    case 'n':
      return JsonKind::kNull;
    default:
      return *at_ == '-' || *at_ == 'N' || *at_ == 'I' || IsDigit(*at_) ? JsonKind::kNumber
                                                                        : JsonKind::kOther;
  }
}

bool JsonReader::Enter() {
  if (depth_ == kDepthMax) {
    return Fail(absl::OutOfRangeError(
        absl::StrCat("the JSON is nested deeper than ", kDepthMax, " levels")));
  }
  ++depth_;
  ++at_;
  first_ = true;
  return true;
}

bool JsonReader::BeginObject() {
  return Peek() == JsonKind::kObject ? Enter() : ExpectedKind("an object");
}

bool JsonReader::BeginArray() {
  return Peek() == JsonKind::kArray ? Enter() : ExpectedKind("an array");
}

bool JsonReader::NextItem(char closing) {
  if (!ok()) return false;
  SkipBlanks();
  const bool first = first_;
  first_ = false;
  if (at_ != end_ && *at_ == closing) {
    ++at_;
    --depth_;
    return false;
  }
  if (first) return true;
  if (at_ == end_ || *at_ != ',') {
    return Expected(closing == '}' ? "',' or '}'" : "',' or ']'");
  }
  ++at_;
  return true;
}

bool JsonReader::NextMember(std::string_view* key) {
  if (!NextItem('}')) return false;
  if (Peek() != JsonKind::kString) return Expected("a string");
  if (!ReadString(key)) return false;
  SkipBlanks();
  if (at_ == end_ || *at_ != ':') return Expected("':'");
  ++at_;
  return true;
}

bool JsonReader::NextElement() {
  if (!NextItem(']')) return false;
  SkipBlanks();
  if (at_ == end_ || *at_ == ']') return Expected("a value");
  return true;
}

bool JsonReader::ReadString(std::string_view* value) {
  if (Peek() != JsonKind::kString) return ExpectedKind("a string");
  char* const begin = ++at_;
  char* to = begin;
  while (at_ != end_ && *at_ != '"') {
    if (static_cast<unsigned char>(*at_) < 0x20) return Expected("no control character");
    if (*at_ == '\\') {
      if (!Unescape(&to)) return false;
    } else {
      *to++ = *at_++;
    }
  }
  if (at_ == end_) return Expected("'\"'");
  ++at_;
  *value = std::string_view(begin, static_cast<size_t>(to - begin));
  if (!IsUtf8(*value)) return Fail(absl::InvalidArgumentError("the JSON is not UTF-8"));
  first_ = false;
  return true;
}

bool JsonReader::Unescape(char** to) {
  ++at_;
  if (at_ == end_) return Expected("an escape");
  const char c = *at_++;
  static constexpr std::string_view kShort = "\"\\/bfnrt";
  static constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
  const size_t index = kShort.find(c);
  if (index != std::string_view::npos) {
    *(*to)++ = kMeaning[index];
    return true;
  }
  return c == 'u' ? UnescapeUnicode(to) : Expected("an escape that JSON has");
}

bool JsonReader::UnescapeUnicode(char** to) {
  uint32_t code = 0;
  if (!ReadHex4(&code)) return false;
  if (code >= 0xdc00 && code < 0xe000) return Expected("a high surrogate before a low one");
  if (code >= 0xd800 && code < 0xdc00) {
    uint32_t low = 0;
    if (end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') return Expected("a low surrogate");
    at_ += 2;
    if (!ReadHex4(&low)) return false;
    if (low < 0xdc00 || low >= 0xe000) return Expected("a low surrogate");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  *to = AppendUtf8(code, *to);
  return true;
}

bool JsonReader::ReadHex4(uint32_t* code) {
  if (end_ - at_ < 4) return Expected("four hexadecimal digits");
  const std::from_chars_result result = std::from_chars(at_, at_ + 4, *code, 16);
  if (result.ptr != at_ + 4) return Expected("four hexadecimal digits");
  at_ += 4;
  return true;
}

bool JsonReader::Literal(std::string_view word) {
  if (static_cast<size_t>(end_ - at_) < word.size() ||
      std::memcmp(at_, word.data(), word.size()) != 0) {
    return Expected("a value");
  }
  at_ += word.size();
  first_ = false;
  return true;
}

bool JsonReader::ReadBool(bool* value) {
  if (Peek() != JsonKind::kBool) return ExpectedKind("true or false");
  *value = *at_ == 't';
  return Literal(*value ? "true" : "false");
}

bool JsonReader::ReadNumber(std::string_view* text) {
  if (Peek() != JsonKind::kNumber) return ExpectedKind("a number");
  const std::string_view rest(at_, static_cast<size_t>(end_ - at_));
  const size_t length = NumberLength(rest);
  if (length == 0) return Expected("a number");
  *text = rest.substr(0, length);
  at_ += length;
  first_ = false;
  return true;
}

template <typename Integer>
bool JsonReader::ReadInteger(std::string_view what, Integer* value) {
  std::string_view text;
  char* const before = at_;
  if (!ReadNumber(&text)) return false;
  const std::from_chars_result result =
      std::from_chars(text.data(), text.data() + text.size(), *value);
  if (result.ec == std::errc() && result.ptr == text.data() + text.size()) return true;
  at_ = before;
  return ExpectedKind(what);
}

bool JsonReader::ReadInt64(int64_t* value) { return ReadInteger("an integer of 64 bits", value); }

bool JsonReader::ReadUint64(uint64_t* value) {
  return ReadInteger("a non-negative integer of 64 bits", value);
}

bool JsonReader::SkipString() {
  ++at_;
  for (; at_ != end_; ++at_) {
    if (*at_ == '"') {
      ++at_;
      return true;
    }
    if (static_cast<unsigned char>(*at_) < 0x20) return Expected("no control character");
    if (*at_ == '\\' && ++at_ == end_) break;
  }
  return Expected("'\"'");
}

bool JsonReader::SkipScalar() {
  std::string_view text;
  switch (Peek()) {
    case JsonKind::kString:
      return SkipString();
    case JsonKind::kNumber:
      return ReadNumber(&text);
    case JsonKind::kBool:
      return Literal(*at_ == 't' ? "true" : "false");
    case JsonKind::kNull:
      return Literal("null");
    default:
      return Expected("a value");
  }
}

bool JsonReader::SkipValue(std::span<char>* raw) {
  SkipBlanks();
  char* const begin = at_;
  const size_t outer = depth_;
  uint64_t is_object = 0;  // bit d: what was entered at depth d
  do {
    bool has_item = true;
    if (depth_ > outer) {  // inside: the next item, or the end of this container
      if ((is_object >> depth_ & 1) != 0) {
        std::string_view key;
        has_item = NextMember(&key);
      } else {
        has_item = NextElement();
      }
    }
    if (!ok()) return false;
    if (!has_item) continue;
    const JsonKind kind = Peek();
    if (kind == JsonKind::kObject || kind == JsonKind::kArray) {
      if (!Enter()) return false;
      const uint64_t bit = uint64_t{1} << depth_;
      is_object = kind == JsonKind::kObject ? is_object | bit : is_object & ~bit;
    } else if (!SkipScalar()) {
      return false;
    }
  } while (depth_ > outer);
  first_ = false;
  *raw = std::span<char>(begin, static_cast<size_t>(at_ - begin));
  return true;
}

absl::Status JsonReader::Finish() {
  if (ok() && Peek() != JsonKind::kEnd) Expected("nothing more");
  return status_;
}

}  // namespace hps::server
