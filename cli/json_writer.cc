#include "cli/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

namespace hps::cli {
namespace {

constexpr size_t kBufferBytes = 64 << 10;

template <typename Number>
std::string_view Print(Number value, std::array<char, 64>& buffer) {
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), static_cast<size_t>(result.ptr - buffer.data())};
}

template <typename Float>
std::string_view PrintFloat(Float value, std::array<char, 64>& buffer) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  // Python, for one, reads "-0" as an integer, which has no sign.
  if (value == 0 && std::signbit(value)) return "-0.0";
  return Print(value, buffer);
}

}  // namespace

size_t Utf8SequenceBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
      (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f))
    return 0;
  return bytes;
}

std::string FormatFloat(float value) {
  std::array<char, 64> buffer;
  return std::string(PrintFloat(value, buffer));
}

void JsonWriter::Separate() {
  if (needs_comma_) buffer_ += ',';
}

JsonWriter& JsonWriter::Open(char bracket) {
  Separate();
  buffer_ += bracket;
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  buffer_ += bracket;
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Raw(std::string_view text) {
  Separate();
  buffer_ += text;
  needs_comma_ = true;
  if (buffer_.size() >= kBufferBytes) Flush();
  return *this;
}

void JsonWriter::AppendQuoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  buffer_ += '"';
  while (!text.empty()) {
    const size_t bytes = Utf8SequenceBytes(text);
    const auto first = static_cast<unsigned char>(text[0]);
    if (bytes == 0) {
      buffer_ += "\xef\xbf\xbd";  // U+FFFD, the replacement character
    } else if (first < 0x20 || first == 0x7f) {
      buffer_ += "\\u00";
      buffer_ += kDigits[first >> 4];
      buffer_ += kDigits[first & 15];
    } else {
      if (first == '"' || first == '\\') buffer_ += '\\';
      buffer_ += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  buffer_ += '"';
}

JsonWriter& JsonWriter::Name(std::string_view name) {
  Separate();
  AppendQuoted(name);
  buffer_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Value(std::string_view text) {
  Separate();
  AppendQuoted(text);
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::Value(bool value) { return Raw(value ? "true" : "false"); }

JsonWriter& JsonWriter::Value(int64_t value) {
  std::array<char, 64> buffer;
  return Raw(Print(value, buffer));
}

JsonWriter& JsonWriter::Value(uint64_t value) {
  std::array<char, 64> buffer;
  return Raw(Print(value, buffer));
}

JsonWriter& JsonWriter::Value(double value) {
  std::array<char, 64> buffer;
  return Raw(PrintFloat(value, buffer));
}

JsonWriter& JsonWriter::Value(float value) {
  std::array<char, 64> buffer;
  return Raw(PrintFloat(value, buffer));
}

bool JsonWriter::Flush() {
  if (std::fwrite(buffer_.data(), 1, buffer_.size(), out_) != buffer_.size()) failed_ = true;
  buffer_.clear();
  if (std::fflush(out_) != 0) failed_ = true;
  return !failed_;
}

}  // namespace hps::cli
