#include "base/text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace hps {
namespace {

// A character and its length in bytes; a byte that begins no valid sequence is a character of its
// own.
struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

// REQUIRES: text is not empty.
Character FirstCharacter(std::string_view text) {
  const auto byte_at = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte_at(0);
  if (lead < 0x80) return {lead, 1, true};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte_at(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte_at(i) & 0x3fU);
  }
  constexpr std::array<uint32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kSmallest[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {code, bytes, true};
}

bool IsControl(uint32_t code) { return code < 0x20 || (code >= 0x7f && code <= 0x9f); }

void AppendEscaped(uint32_t code, std::string* json) {
  switch (code) {
    case '\n':
      *json += "\\n";
      return;
    case '\t':
      *json += "\\t";
      return;
    case '\r':
      *json += "\\r";
      return;
    default:
      break;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  *json += "\\u00";
  *json += kDigits[code >> 4 & 0xf];
  *json += kDigits[code & 0xf];
}

}  // namespace

std::string PrintableText(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const Character next = FirstCharacter(text);
    if (!next.valid) {
      line += '?';
    } else if (IsControl(next.code)) {
      line += ' ';
    } else {
      line += text.substr(0, next.bytes);
    }
    text.remove_prefix(next.bytes);
  }
  return line;
}

void AppendJsonString(std::string_view text, std::string* json) {
  *json += '"';
  while (!text.empty()) {
    const Character next = FirstCharacter(text);
    if (!next.valid) {
      *json += "\xef\xbf\xbd";
    } else if (IsControl(next.code)) {
      AppendEscaped(next.code, json);
    } else {
      if (next.code == '"' || next.code == '\\') *json += '\\';
      *json += text.substr(0, next.bytes);
    }
    text.remove_prefix(next.bytes);
  }
  *json += '"';
}

std::string PrintDouble(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), result.ptr);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

}  // namespace hps
