#include "base/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

#include "base/text.h"

namespace hps {
namespace {

constexpr size_t kStreamBufferBytes = 64 << 10;

std::string_view NonFiniteName(double value) {
  return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

// REQUIRES: finite.
template <typename T>
void AppendNumber(T value, std::string* out) {
  if constexpr (std::floating_point<T>) {
    // Python, for one, reads "-0" as an integer, which has no sign.
    if (value == 0 && std::signbit(value)) {
      out->append("-0.0");
      return;
    }
  }
  std::array<char, 64> text;
  const std::to_chars_result end = std::to_chars(text.data(), text.data() + text.size(), value);
  out->append(text.data(), end.ptr);
}

}  // namespace

std::string FormatFloat(float value) {
  if (!std::isfinite(value)) return std::string(NonFiniteName(value));
  std::string text;
  AppendNumber(value, &text);
  return text;
}

void JsonWriter::BeginValue() {
  if (needs_comma_) out_->push_back(',');
}

JsonWriter& JsonWriter::EndValue() {
  needs_comma_ = true;
  if (stream_ != nullptr && out_->size() >= kStreamBufferBytes) Flush();
  return *this;
}

JsonWriter& JsonWriter::Open(char bracket) {
  BeginValue();
  out_->push_back(bracket);
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  out_->push_back(bracket);
  return EndValue();
}

JsonWriter& JsonWriter::Name(std::string_view name) {
  BeginValue();
  AppendJsonString(name, out_);
  out_->push_back(':');
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::WriteBool(bool value) {
  BeginValue();
  out_->append(value ? "true" : "false");
  return EndValue();
}

template <typename T>
JsonWriter& JsonWriter::WriteNumber(T value) {
  BeginValue();
  bool is_finite = true;
  if constexpr (std::floating_point<T>) is_finite = std::isfinite(value);
  if (is_finite) {
    AppendNumber(value, out_);
  } else if (non_finite_ == NonFinite::kNull) {
    out_->append("null");
  } else {
    AppendJsonString(NonFiniteName(static_cast<double>(value)), out_);
  }
  return EndValue();
}

template JsonWriter& JsonWriter::WriteNumber(int64_t);
template JsonWriter& JsonWriter::WriteNumber(uint64_t);
template JsonWriter& JsonWriter::WriteNumber(float);
template JsonWriter& JsonWriter::WriteNumber(double);

JsonWriter& JsonWriter::Value(std::string_view text) {
  BeginValue();
  AppendJsonString(text, out_);
  return EndValue();
}

bool JsonWriter::Flush() {
  if (std::fwrite(out_->data(), 1, out_->size(), stream_) != out_->size()) failed_ = true;
  out_->clear();
  if (std::fflush(stream_) != 0) failed_ = true;
  return !failed_;
}

}  // namespace hps
