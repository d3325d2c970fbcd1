#include "types/units.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace hps {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};

constexpr std::array<Unit, 5> kSizeUnits = {{{"B", 1},
                                             {"KiB", uint64_t{1} << 10},
                                             {"MiB", uint64_t{1} << 20},
                                             {"GiB", uint64_t{1} << 30},
                                             {"TiB", uint64_t{1} << 40}}};

constexpr std::array<Unit, 6> kDurationUnits = {{{"ns", 1},
                                                 {"us", 1'000},
                                                 {"ms", 1'000'000},
                                                 {"s", 1'000'000'000},
                                                 {"min", 60'000'000'000},
                                                 {"h", 3'600'000'000'000}}};

// Parses "<digits><unit>" into multiples of the smallest unit; nullopt for anything else and on
// overflow.
std::optional<uint64_t> ParseWithUnit(std::string_view text, std::span<const Unit> units) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view name(rest, static_cast<size_t>(end - rest));
  for (const Unit& unit : units) {
    if (unit.name == name) return CheckedMultiply(number, unit.factor);
  }
  return std::nullopt;
}

std::string FormatWithUnit(uint64_t value, std::span<const Unit> units) {
  for (size_t i = units.size() - 1; i > 0 && value != 0; --i) {
    if (value % units[i].factor == 0)
      return std::to_string(value / units[i].factor) + std::string(units[i].name);
  }
  return std::to_string(value) + std::string(units[0].name);
}

absl::Status NotUnderstood(std::string_view text, const char* expected) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", absl::string_view(text.data(), text.size()), "' is not ", expected));
}

}  // namespace

absl::StatusOr<uint64_t> ParseByteSize(std::string_view text) {
  const std::optional<uint64_t> bytes = ParseWithUnit(text, kSizeUnits);
  if (!bytes.has_value())
    return NotUnderstood(text, "a size below 2^64 bytes such as \"512MiB\" (B KiB MiB GiB TiB)");
  return *bytes;
}

absl::StatusOr<std::chrono::nanoseconds> ParseDuration(std::string_view text) {
  const std::optional<uint64_t> duration = ParseWithUnit(text, kDurationUnits);
  if (!duration.has_value() || *duration > std::numeric_limits<int64_t>::max())
    return NotUnderstood(text, "a duration such as \"500ms\" (ns us ms s min h)");
  return std::chrono::nanoseconds(*duration);
}

std::string FormatByteSize(uint64_t bytes) { return FormatWithUnit(bytes, kSizeUnits); }

std::string FormatDuration(std::chrono::nanoseconds duration) {
  if (duration.count() < 0)
    return "-" + FormatWithUnit(-static_cast<uint64_t>(duration.count()), kDurationUnits);
  // "0s" is more readable than "0ns".
  return duration.count() == 0
             ? "0s"
             : FormatWithUnit(static_cast<uint64_t>(duration.count()), kDurationUnits);
}

}  // namespace hps
