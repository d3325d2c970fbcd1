// How settings of each type are read from a configuration file, checked and printed as TOML.
//
// A codec is a value with four functions: type() for the documentation; Read, whose error says what
// was expected; Check for the range, also used on values that were set in code; and Print, whose
// TOML Read reads back ("" = not set).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/text.h"
#include "hps/config.h"
#include "import/model_toml.h"
#include "node/config_settings.h"

namespace hps {

// INVALID_ARGUMENT: "expected <what>, found <value's kind>".
absl::Status WrongType(const std::string& what, const ConfigValue& value);

// INVALID_ARGUMENT: "out of range, expected <min> to <max>", with ", found <found>" for a value
// that the setting's type cannot hold.
absl::Status OutOfRange(const std::string& min, const std::string& max,
                        std::optional<int64_t> found = {});

struct BooleanCodec {
  std::string type() const { return "boolean"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, bool& out) const;
  absl::Status Check(bool) const { return absl::OkStatus(); }
  std::string Print(bool value) const { return value ? "true" : "false"; }
};

template <std::integral T>
struct IntegerCodec {
  T min = 0;
  T max = 0;

  std::string type() const { return absl::StrCat("integer, ", min, " to ", max); }
  absl::Status Read(const ConfigValue& value, const std::string&, T& out) const {
    const auto* given = std::get_if<int64_t>(&value);
    if (given == nullptr) return WrongType("an integer", value);
    if (!std::in_range<T>(*given)) return OutOfRange(Print(min), Print(max), *given);
    out = static_cast<T>(*given);
    return absl::OkStatus();
  }
  absl::Status Check(T value) const {
    if (value < min || value > max) return OutOfRange(Print(min), Print(max));
    return absl::OkStatus();
  }
  std::string Print(T value) const { return std::to_string(value); }
};

struct NumberCodec {
  double min = 0;
  double max = 0;

  std::string type() const { return "number, " + Print(min) + " to " + Print(max); }
  absl::Status Read(const ConfigValue& value, const std::string& directory, double& out) const;
  absl::Status Check(double value) const;
  std::string Print(double value) const { return PrintDouble(value); }
};

// "512MiB", or a number of bytes; also "auto", which is kAutoBytes, if `may_be_auto`.
struct SizeCodec {
  uint64_t min = 0;
  uint64_t max = 0;
  bool may_be_auto = false;

  std::string type() const { return may_be_auto ? "\"auto\" | size" : "size"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, uint64_t& out) const;
  absl::Status Check(uint64_t value) const;
  std::string Print(uint64_t value) const;
};

struct DurationCodec {
  Duration min{};
  Duration max{};

  std::string type() const { return "duration"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, Duration& out) const;
  absl::Status Check(Duration value) const;
  std::string Print(Duration value) const;
};

// `path` relative to `directory`; an absolute path is unchanged.
std::string ResolvePath(const std::string& directory, const std::string& path);

// A text of one kind; empty = not set, unless the kind has a meaning for it.
struct TextCodec {
  const char* name;      // as documented
  const char* expected;  // for errors: "a path"
  absl::Status (*check)(const std::string& text);
  bool is_path = false;  // relative to a directory
  bool is_off_if_empty = false;

  std::string type() const { return name; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, std::string& out) const;
  absl::Status Check(const std::string& value) const { return check(value); }
  std::string Print(const std::string& value, const std::string& directory) const;
};
extern const TextCodec kPath;     // of a file or directory
extern const TextCodec kAddress;  // "host:port", or "" = off
extern const TextCodec kName;     // of a model, or of a table without its model
extern const TextCodec kText;     // any text of one line

// Names, each at most once, or texts without blanks and commas.
struct TextListCodec {
  const char* elements;  // "names"
  bool are_names = false;

  std::string type() const { return absl::StrCat("list of ", elements); }
  absl::Status Read(const ConfigValue& value, const std::string& directory,
                    std::vector<std::string>& out) const;
  absl::Status Check(const std::vector<std::string>& value) const;
  std::string Print(const std::vector<std::string>& value) const;
};

inline constexpr int kDeviceMax = 1023;

// "auto" or a list of device numbers.
struct DevicesCodec {
  std::string type() const { return "\"auto\" | list of integers"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, L1Config& out) const;
  absl::Status Check(const L1Config& value) const;
  std::string Print(const L1Config& value) const;
};

// An enumeration whose values count from 0.
template <typename Enum>
struct EnumCodec {
  std::vector<std::string> names;  // in the order of the enumerators

  std::string type() const {
    return absl::StrJoin(names, " | ", [](std::string* text, const std::string& name) {
      absl::StrAppend(text, QuoteToml(name));
    });
  }
  absl::Status Read(const ConfigValue& value, const std::string&, Enum& out) const {
    const auto* given = std::get_if<std::string>(&value);
    if (given == nullptr) return WrongType(type(), value);
    const auto found = std::find(names.begin(), names.end(), *given);
    if (found == names.end())
      return absl::InvalidArgumentError("expected " + type() + ", found " + QuoteToml(*given));
    out = static_cast<Enum>(found - names.begin());
    return absl::OkStatus();
  }
  absl::Status Check(Enum value) const {
    return Print(value).empty() ? absl::InvalidArgumentError("expected " + type())
                                : absl::OkStatus();
  }
  std::string Print(Enum value) const {
    const auto index = static_cast<size_t>(value);
    return index < names.size() ? QuoteToml(names[index]) : "";
  }
};

// A setting that may be left unset.
template <typename Codec>
struct OptionalCodec {
  Codec codec;

  std::string type() const { return codec.type(); }
  template <typename T>
  absl::Status Read(const ConfigValue& value, const std::string& directory,
                    std::optional<T>& out) const {
    return codec.Read(value, directory, out.emplace());
  }
  template <typename T>
  absl::Status Check(const std::optional<T>& value) const {
    return value.has_value() ? codec.Check(*value) : absl::OkStatus();
  }
  template <typename T>
  std::string Print(const std::optional<T>& value) const {
    return value.has_value() ? codec.Print(*value) : "";
  }
};

}  // namespace hps
