// What the text of an option means: numbers, names and lists of keys, strictly.
//
// A value is what it looks like or an error: no sign, blank, octal or hexadecimal form is guessed
// at, and nothing wraps around. Errors are INVALID_ARGUMENT and quote the text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_split.h"
#include "hps/model_import.h"
#include "hps/types.h"

namespace hps::cli {

// A whole number from `min` to `max`, in decimal digits.
absl::StatusOr<uint64_t> ParseCount(const std::string& text, uint64_t min, uint64_t max);

// A decimal number; "inf", "-inf" and "nan" too.
absl::StatusOr<double> ParseNumber(const std::string& text);

// -1, or the number of a device.
absl::StatusOr<int> ParseDevice(const std::string& text);

// Values that are separated by commas; `parse` reads one.
template <typename Parse>
auto ParseList(const std::string& text, Parse parse) {
  using Value = typename decltype(parse(text))::value_type;
  absl::StatusOr<std::vector<Value>> values = std::vector<Value>();
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const absl::StatusOr<Value> value = parse(part);
    if (!value.ok()) return absl::StatusOr<std::vector<Value>>(value.status());
    values->push_back(*value);
  }
  return values;
}

// Signed decimals, and decimals above 2^63 - 1 bit for bit, separated by commas.
absl::StatusOr<std::vector<Key>> ParseKeys(const std::string& text);

// NAME=PATH: a table of a model.
absl::StatusOr<TableSource> ParseTableSource(const std::string& text);

// A model's name alone, without a table's.
absl::Status CheckModelName(const std::string& text);

}  // namespace hps::cli
