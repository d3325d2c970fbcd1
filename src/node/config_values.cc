#include "node/config_values.h"

#include <charconv>
#include <filesystem>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/text.h"
#include "hps/table_spec.h"
#include "types/units.h"

namespace hps {
namespace {

// An empty list arrives as a list of integers.
absl::Status ReadTexts(const ConfigValue& value, const char* what, std::vector<std::string>& out) {
  const auto* given = std::get_if<std::vector<std::string>>(&value);
  const auto* integers = std::get_if<std::vector<int64_t>>(&value);
  if (given == nullptr && (integers == nullptr || !integers->empty()))
    return WrongType(what, value);
  out = given == nullptr ? std::vector<std::string>() : *given;
  return absl::OkStatus();
}

std::string PrintTexts(const std::vector<std::string>& texts) {
  std::string list = "[";
  for (const std::string& text : texts)
    absl::StrAppend(&list, list.size() == 1 ? "" : ", ", QuoteToml(text));
  return list + "]";
}

}  // namespace

std::string DescribeValue(const ConfigValue& value) {
  struct Describe {
    std::string operator()(bool) const { return "a boolean"; }
    std::string operator()(int64_t number) const { return absl::StrCat("the integer ", number); }
    std::string operator()(double number) const { return "the number " + PrintDouble(number); }
    std::string operator()(const std::string& text) const {
      return "the string " + QuoteToml(text);
    }
    std::string operator()(const std::vector<int64_t>& values) const {
      return values.empty() ? "an empty list" : "a list of integers";
    }
    std::string operator()(const std::vector<std::string>&) const { return "a list of strings"; }
    std::string operator()(const OtherValue& other) const { return other.kind; }
  };
  return std::visit(Describe(), value);
}

absl::Status WrongType(const char* what, const ConfigValue& value) {
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", what, ", found ", DescribeValue(value)));
}

absl::Status OutOfRange(const std::string& min, const std::string& max,
                        std::optional<int64_t> found) {
  return absl::InvalidArgumentError(
      absl::StrCat("out of range, expected ", min, " to ", max,
                   found.has_value() ? absl::StrCat(", found ", *found) : ""));
}

absl::Status BooleanCodec::Read(const ConfigValue& value, const std::string&, bool& out) const {
  const auto* given = std::get_if<bool>(&value);
  if (given == nullptr) return WrongType("true or false", value);
  out = *given;
  return absl::OkStatus();
}

std::string NumberCodec::type() const {
  return absl::StrCat("number, ", PrintDouble(min), " to ", PrintDouble(max));
}

absl::Status NumberCodec::Read(const ConfigValue& value, const std::string&, double& out) const {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    out = static_cast<double>(*integer);
    return absl::OkStatus();
  }
  const auto* given = std::get_if<double>(&value);
  if (given == nullptr) return WrongType("a number", value);
  out = *given;
  return absl::OkStatus();
}

absl::Status NumberCodec::Check(double value) const {
  // Written so that a NaN is out of range.
  if (!(value >= min && value <= max)) return OutOfRange(PrintDouble(min), PrintDouble(max));
  return absl::OkStatus();
}

std::string NumberCodec::Print(double value) const { return PrintDouble(value); }

std::string SizeCodec::type() const { return "size"; }

absl::Status SizeCodec::Read(const ConfigValue& value, const std::string&, uint64_t& out) const {
  if (const auto* bytes = std::get_if<int64_t>(&value)) {
    if (*bytes < 0) return OutOfRange(FormatByteSize(min), FormatByteSize(max), *bytes);
    out = static_cast<uint64_t>(*bytes);
    return absl::OkStatus();
  }
  const auto* given = std::get_if<std::string>(&value);
  if (given == nullptr) return WrongType("a size such as \"512MiB\"", value);
  HPS_ASSIGN_OR_RETURN(out, ParseByteSize(*given));
  return absl::OkStatus();
}

absl::Status SizeCodec::Check(uint64_t value) const {
  if (value < min || value > max) return OutOfRange(FormatByteSize(min), FormatByteSize(max));
  return absl::OkStatus();
}

std::string SizeCodec::Print(uint64_t value) const { return QuoteToml(FormatByteSize(value)); }

absl::Status AutoSizeCodec::Read(const ConfigValue& value, const std::string& directory,
                                 uint64_t& out) const {
  if (const auto* text = std::get_if<std::string>(&value); text != nullptr && *text == "auto") {
    out = kAutoBytes;
    return absl::OkStatus();
  }
  return size.Read(value, directory, out);
}

std::string DurationCodec::type() const { return "duration"; }

absl::Status DurationCodec::Read(const ConfigValue& value, const std::string&,
                                 Duration& out) const {
  const auto* given = std::get_if<std::string>(&value);
  if (given == nullptr) return WrongType("a duration such as \"500ms\"", value);
  HPS_ASSIGN_OR_RETURN(out, ParseDuration(*given));
  return absl::OkStatus();
}

absl::Status DurationCodec::Check(Duration value) const {
  if (value < min || value > max) return OutOfRange(FormatDuration(min), FormatDuration(max));
  return absl::OkStatus();
}

std::string DurationCodec::Print(Duration value) const { return QuoteToml(FormatDuration(value)); }

// operator/ returns its right operand if that is absolute.
std::string ResolvePath(const std::string& directory, const std::string& path) {
  return (std::filesystem::path(directory) / path).lexically_normal().string();
}

absl::Status PathCodec::Read(const ConfigValue& value, const std::string& directory,
                             std::string& out) const {
  const auto* given = std::get_if<std::string>(&value);
  if (given == nullptr) return WrongType("a path", value);
  if (given->empty()) return absl::InvalidArgumentError("expected a path, found \"\"");
  out = ResolvePath(directory, *given);
  return absl::OkStatus();
}

absl::Status PathCodec::Check(const std::string& value) const {
  if (value.find('\0') != std::string::npos)
    return absl::InvalidArgumentError("a path can't hold a zero byte");
  return absl::OkStatus();
}

std::string PathCodec::Print(const std::string& value) const {
  return value.empty() ? "" : QuoteToml(value);
}

absl::Status ListenCodec::Read(const ConfigValue& value, const std::string&,
                               std::string& out) const {
  const auto* given = std::get_if<std::string>(&value);
  if (given == nullptr) return WrongType("\"host:port\"", value);
  out = *given;
  return absl::OkStatus();
}

absl::Status ListenCodec::Check(const std::string& value) const {
  if (value.empty()) return absl::OkStatus();
  const size_t colon = value.rfind(':');
  uint16_t port = 0;
  const char* end = value.data() + value.size();
  const auto result = colon == std::string::npos
                          ? std::from_chars_result{end, std::errc::invalid_argument}
                          : std::from_chars(value.data() + colon + 1, end, port);
  if (colon == 0 || result.ec != std::errc() || result.ptr != end)
    return absl::InvalidArgumentError("expected \"host:port\" with a port from 0 to 65535, found " +
                                      QuoteToml(value));
  return absl::OkStatus();
}

absl::Status NameCodec::Read(const ConfigValue& value, const std::string&, std::string& out) const {
  const auto* given = std::get_if<std::string>(&value);
  if (given == nullptr) return WrongType("a name", value);
  out = *given;
  return absl::OkStatus();
}

absl::Status NameCodec::Check(const std::string& value) const {
  if (ValidateTableName(value + "/t").ok() && value.find('/') == std::string::npos)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected a name of 1 to ", kNameBytesMax, " characters a-z A-Z 0-9 _ -"));
}

absl::Status NameListCodec::Read(const ConfigValue& value, const std::string&,
                                 std::vector<std::string>& out) const {
  return ReadTexts(value, "a list of names", out);
}

absl::Status NameListCodec::Check(const std::vector<std::string>& value) const {
  std::set<std::string> seen;
  for (const std::string& name : value) {
    HPS_RETURN_IF_ERROR(NameCodec{}.Check(name));
    if (!seen.insert(name).second)
      return absl::InvalidArgumentError(absl::StrCat("'", name, "' is listed twice"));
  }
  return absl::OkStatus();
}

std::string NameListCodec::Print(const std::vector<std::string>& value) const {
  return PrintTexts(value);
}

absl::Status TextCodec::Read(const ConfigValue& value, const std::string&, std::string& out) const {
  const auto* given = std::get_if<std::string>(&value);
  if (given == nullptr) return WrongType("a text", value);
  out = *given;
  return absl::OkStatus();
}

absl::Status TextCodec::Check(const std::string& value) const {
  const bool is_line = std::none_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  });
  return is_line ? absl::OkStatus() : absl::InvalidArgumentError("expected a text of one line");
}

absl::Status TextListCodec::Read(const ConfigValue& value, const std::string&,
                                 std::vector<std::string>& out) const {
  return ReadTexts(value, what, out);
}

absl::Status TextListCodec::Check(const std::vector<std::string>& value) const {
  for (const std::string& text : value) {
    const bool is_word = std::none_of(text.begin(), text.end(), [](char c) {
      return static_cast<unsigned char>(c) <= ' ' || c == ',' || c == '\x7f';
    });
    if (is_word && !text.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("expected a ", what, ", each without blanks and commas"));
  }
  return absl::OkStatus();
}

std::string TextListCodec::Print(const std::vector<std::string>& value) const {
  return PrintTexts(value);
}

absl::Status DevicesCodec::Read(const ConfigValue& value, const std::string&, L1Config& out) const {
  const auto* text = std::get_if<std::string>(&value);
  const auto* list = std::get_if<std::vector<int64_t>>(&value);
  if (text != nullptr && *text == "auto") {
    out.devices_auto = true;
    out.devices.clear();
    return absl::OkStatus();
  }
  if (list == nullptr) return WrongType("\"auto\" or a list of device numbers", value);
  out.devices_auto = false;
  out.devices.clear();
  for (const int64_t device : *list) {
    if (device < 0 || device > kDeviceMax)
      return OutOfRange("0", std::to_string(kDeviceMax), device);
    out.devices.push_back(static_cast<int>(device));
  }
  return absl::OkStatus();
}

absl::Status DevicesCodec::Check(const L1Config& value) const {
  std::set<int> seen;
  for (const int device : value.devices) {
    if (device < 0 || device > kDeviceMax) return OutOfRange("0", std::to_string(kDeviceMax));
    if (!seen.insert(device).second)
      return absl::InvalidArgumentError(absl::StrCat("device ", device, " is listed twice"));
  }
  return absl::OkStatus();
}

std::string DevicesCodec::Print(const L1Config& value) const {
  if (value.devices_auto) return "\"auto\"";
  std::string text = "[";
  for (const int device : value.devices)
    absl::StrAppend(&text, text.size() == 1 ? "" : ", ", device);
  return text + "]";
}

}  // namespace hps
