#include "server/http/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

namespace hps::server {
namespace {

constexpr std::array<char, 16> kHex = {'0', '1', '2', '3', '4', '5', '6', '7',
                                       '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};

void AppendEscaped(char c, std::string* out) {
  switch (c) {
    case '"':
      out->append("\\\"");
      return;
    case '\\':
      out->append("\\\\");
      return;
    case '\n':
      out->append("\\n");
      return;
    case '\r':
      out->append("\\r");
      return;
    case '\t':
      out->append("\\t");
      return;
    default:
      out->append("\\u00");
      out->push_back(kHex[static_cast<unsigned char>(c) >> 4]);
      out->push_back(kHex[static_cast<unsigned char>(c) & 15]);
  }
}

}  // namespace

template <typename T>
requires(std::integral<T> || std::floating_point<T>) &&
    (!std::same_as<T, bool>)void JsonWriter::Number(T value) {
  Separate();
  if constexpr (std::floating_point<T>) {
    if (!std::isfinite(value)) {
      out_->append(std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
      return;
    }
    // Python, for one, reads "-0" as an integer, which has no sign.
    if (value == 0 && std::signbit(value)) {
      out_->append("-0.0");
      return;
    }
  }
  std::array<char, 64> text;
  const std::to_chars_result end = std::to_chars(text.data(), text.data() + text.size(), value);
  out_->append(text.data(), end.ptr);
}

template void JsonWriter::Number(int);
template void JsonWriter::Number(unsigned);
template void JsonWriter::Number(long);
template void JsonWriter::Number(unsigned long);
template void JsonWriter::Number(float);
template void JsonWriter::Number(double);

void JsonWriter::Bool(bool value) {
  Separate();
  out_->append(value ? "true" : "false");
}

void JsonWriter::String(std::string_view text) {
  Separate();
  out_->push_back('"');
  size_t kept = 0;  // up to here it is written
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) continue;
    out_->append(text, kept, i - kept);
    AppendEscaped(text[i], out_);
    kept = i + 1;
  }
  out_->append(text, kept, text.size() - kept);
  out_->push_back('"');
}

}  // namespace hps::server
