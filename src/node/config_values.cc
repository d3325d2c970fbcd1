#include "node/config_values.h"

#include <charconv>
#include <filesystem>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "hps/table_spec.h"
#include "types/units.h"

namespace hps {
namespace {

// Copies a value of type T to `out`. `what` names the expected type in the error.
template <typename T>
absl::Status Take(const ConfigValue& value, const std::string& what, T& out) {
  const auto* given = std::get_if<T>(&value);
  if (given == nullptr) return WrongType(what, value);
  out = *given;
  return absl::OkStatus();
}

absl::Status CheckPath(const std::string& path) {
  if (path.find('\0') == std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError("a path can't hold a zero byte");
}

absl::Status CheckAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (address.empty()) return absl::OkStatus();
  uint16_t port = 0;
  const char* const end = address.data() + address.size();
  if (colon != std::string::npos && colon != 0) {
    const auto [last, error] = std::from_chars(address.data() + colon + 1, end, port);
    if (error == std::errc() && last == end) return absl::OkStatus();
  }
  return absl::InvalidArgumentError("expected \"host:port\" with a port from 0 to 65535, found " +
                                    QuoteToml(address));
}

absl::Status CheckName(const std::string& name) {
  if (ValidateTableName(name + "/t").ok() && name.find('/') == std::string::npos)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected a name of 1 to ", kNameBytesMax, " characters a-z A-Z 0-9 _ -"));
}

// Whether all characters are printable, or bytes beyond ASCII, and at least `min`.
bool IsPlain(const std::string& text, unsigned char min) {
  return std::all_of(text.begin(), text.end(),
                     [min](char c) { return static_cast<unsigned char>(c) >= min && c != '\x7f'; });
}

absl::Status CheckLine(const std::string& text) {
  if (IsPlain(text, ' ')) return absl::OkStatus();
  return absl::InvalidArgumentError("expected a text of one line");
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

absl::Status WrongType(const std::string& what, const ConfigValue& value) {
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
  return Take(value, "true or false", out);
}

absl::Status NumberCodec::Read(const ConfigValue& value, const std::string&, double& out) const {
  const auto* integer = std::get_if<int64_t>(&value);
  if (integer == nullptr) return Take(value, "a number", out);
  out = static_cast<double>(*integer);
  return absl::OkStatus();
}

absl::Status NumberCodec::Check(double value) const {
  // Written so that a NaN is out of range.
  return value >= min && value <= max ? absl::OkStatus() : OutOfRange(Print(min), Print(max));
}

absl::Status SizeCodec::Read(const ConfigValue& value, const std::string&, uint64_t& out) const {
  if (const auto* bytes = std::get_if<int64_t>(&value)) {
    if (*bytes < 0) return OutOfRange(FormatByteSize(min), FormatByteSize(max), *bytes);
    out = static_cast<uint64_t>(*bytes);
    return absl::OkStatus();
  }
  std::string text;
  HPS_RETURN_IF_ERROR(Take(value, "a size such as \"512MiB\"", text));
  HPS_ASSIGN_OR_RETURN(out, may_be_auto && text == "auto" ? kAutoBytes : ParseByteSize(text));
  return absl::OkStatus();
}

absl::Status SizeCodec::Check(uint64_t value) const {
  if ((may_be_auto && value == kAutoBytes) || (value >= min && value <= max))
    return absl::OkStatus();
  return OutOfRange(FormatByteSize(min), FormatByteSize(max));
}

std::string SizeCodec::Print(uint64_t value) const {
  return QuoteToml(may_be_auto && value == kAutoBytes ? "auto" : FormatByteSize(value));
}

absl::Status DurationCodec::Read(const ConfigValue& value, const std::string&,
                                 Duration& out) const {
  std::string text;
  HPS_RETURN_IF_ERROR(Take(value, "a duration such as \"500ms\"", text));
  HPS_ASSIGN_OR_RETURN(out, ParseDuration(text));
  return absl::OkStatus();
}

absl::Status DurationCodec::Check(Duration value) const {
  if (value >= min && value <= max) return absl::OkStatus();
  return OutOfRange(FormatDuration(min), FormatDuration(max));
}

std::string DurationCodec::Print(Duration value) const { return QuoteToml(FormatDuration(value)); }

// operator/ returns its right operand if that is absolute.
std::string ResolvePath(const std::string& directory, const std::string& path) {
  return (std::filesystem::path(directory) / path).lexically_normal().string();
}

const TextCodec kPath = {.name = "path", .expected = "a path", .check = CheckPath, .is_path = true};
const TextCodec kAddress = {.name = "host:port or \"\"",
                            .expected = "\"host:port\"",
                            .check = CheckAddress,
                            .is_off_if_empty = true};
const TextCodec kName = {.name = "name", .expected = "a name", .check = CheckName};
const TextCodec kText = {.name = "text", .expected = "a text", .check = CheckLine};

absl::Status TextCodec::Read(const ConfigValue& value, const std::string& directory,
                             std::string& out) const {
  HPS_RETURN_IF_ERROR(Take(value, expected, out));
  if (is_path && out.empty()) return absl::InvalidArgumentError("expected a path, found \"\"");
  if (is_path) out = ResolvePath(directory, out);
  return absl::OkStatus();
}

std::string TextCodec::Print(const std::string& value, const std::string& directory) const {
  if (value.empty()) return is_off_if_empty ? QuoteToml("") : "";
  return QuoteToml(is_path ? ResolvePath(directory, value) : value);
}

absl::Status TextListCodec::Read(const ConfigValue& value, const std::string&,
                                 std::vector<std::string>& out) const {
  // An empty list arrives as a list of integers.
  const auto* integers = std::get_if<std::vector<int64_t>>(&value);
  if (integers == nullptr || !integers->empty())
    return Take(value, are_names ? "a list of names" : type(), out);
  out.clear();
  return absl::OkStatus();
}

absl::Status TextListCodec::Check(const std::vector<std::string>& value) const {
  std::set<std::string> seen;
  for (const std::string& text : value) {
    if (!are_names && (text.empty() || text.find(',') != std::string::npos || !IsPlain(text, '!')))
      return absl::InvalidArgumentError("expected a " + type() +
                                        ", each without blanks and commas");
    if (!are_names) continue;
    HPS_RETURN_IF_ERROR(CheckName(text));
    if (!seen.insert(text).second)
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is listed twice"));
  }
  return absl::OkStatus();
}

std::string TextListCodec::Print(const std::vector<std::string>& value) const {
  const auto append = [](std::string* list, const std::string& text) {
    absl::StrAppend(list, QuoteToml(text));
  };
  return absl::StrCat("[", absl::StrJoin(value, ", ", append), "]");
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
  if (value.devices.size() > kCachesMax)
    return absl::InvalidArgumentError(absl::StrCat("more than ", kCachesMax, " devices"));
  std::set<int> seen;
  for (const int device : value.devices) {
    if (device < 0 || device > kDeviceMax) return OutOfRange("0", std::to_string(kDeviceMax));
    if (!seen.insert(device).second)
      return absl::InvalidArgumentError(absl::StrCat("device ", device, " is listed twice"));
  }
  return absl::OkStatus();
}

std::string DevicesCodec::Print(const L1Config& value) const {
  return value.devices_auto ? "\"auto\""
                            : absl::StrCat("[", absl::StrJoin(value.devices, ", "), "]");
}

}  // namespace hps
