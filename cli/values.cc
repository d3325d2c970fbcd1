#include "cli/values.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "absl/strings/str_cat.h"
#include "hps/table_spec.h"
#include "types/key_text.h"

namespace hps::cli {
namespace {

constexpr int kDeviceMax = 1023;
constexpr size_t kQuotedBytesMax = 40;

std::string Quoted(const std::string& text) {
  return "'" + text.substr(0, kQuotedBytesMax) + (text.size() > kQuotedBytesMax ? "...'" : "'");
}

// Whether all of the text is one number of this type.
template <typename Number>
std::errc Read(const std::string& text, Number& number) {
  const char* const last = text.data() + text.size();
  const auto result = std::from_chars(text.data(), last, number);
  if (result.ec == std::errc() && result.ptr != last) return std::errc::invalid_argument;
  return result.ec;
}

}  // namespace

absl::StatusOr<uint64_t> ParseCount(const std::string& text, uint64_t min, uint64_t max) {
  uint64_t count = 0;
  if (Read(text, count) == std::errc() && count >= min && count <= max) return count;
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(text), " is not a whole number from ", min, " to ", max));
}

absl::StatusOr<double> ParseNumber(const std::string& text) {
  double number = 0;
  const std::errc error = Read(text, number);
  if (error == std::errc()) return number;
  return absl::InvalidArgumentError(Quoted(text) + (error == std::errc::result_out_of_range
                                                        ? " is beyond what a number can hold"
                                                        : " is not a number"));
}

absl::StatusOr<int> ParseDevice(const std::string& text) {
  int device = 0;
  if (Read(text, device) == std::errc() && device >= -1 && device <= kDeviceMax) return device;
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(text), " is not a device: 0 to ", kDeviceMax, ", or -1 for none"));
}

absl::StatusOr<std::vector<Key>> ParseKeys(const std::string& text) {
  if (text.empty()) return std::vector<Key>();
  return ParseList(text, [](const std::string& part) -> absl::StatusOr<Key> {
    if (const std::optional<Key> key = ParseKey(part)) return *key;
    return absl::InvalidArgumentError(Quoted(part) +
                                      " is not a key: a whole number from -2^63 to 2^64 - 1");
  });
}

absl::StatusOr<TableSource> ParseTableSource(const std::string& text) {
  const size_t sign = std::min(text.find('='), text.size());
  TableSource table = {.name = text.substr(0, sign), .from = text.substr(sign).erase(0, 1)};
  if (!table.from.empty() && ValidateTableName("m/" + table.name).ok()) return table;
  return absl::InvalidArgumentError(Quoted(text) + " is not a table's name and path, NAME=PATH");
}

absl::Status CheckModelName(const std::string& text) {
  if (text.find('/') != std::string::npos)
    return absl::InvalidArgumentError(Quoted(text) + ": a model's name holds no '/'");
  if (ValidateTableName(text + "/t").ok()) return absl::OkStatus();  // any table's name behind it
  return absl::InvalidArgumentError(absl::StrCat(Quoted(text), " is not a model's name: 1 to ",
                                                 kNameBytesMax, " characters a-z A-Z 0-9 _ -"));
}

}  // namespace hps::cli
