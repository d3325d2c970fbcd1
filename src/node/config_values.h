// How settings of each type are read from a configuration file, checked and printed as TOML.
//
// A codec is a value with four functions: type() for the documentation; Read, whose error says what
// was expected; Check for the range, also used on values that were set in code; and Print, whose
// TOML Read reads back ("" = not set).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "hps/config.h"
#include "import/model_toml.h"
#include "node/config_settings.h"

namespace hps {

// INVALID_ARGUMENT: "expected <what>, found <value's kind>".
absl::Status WrongType(const char* what, const ConfigValue& value);

struct BooleanCodec {
  std::string type() const { return "boolean"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, bool& out) const;
  absl::Status Check(bool) const { return absl::OkStatus(); }
  std::string Print(bool value) const { return value ? "true" : "false"; }
};

// INVALID_ARGUMENT: "out of range, expected <min> to <max>", with ", found <found>" for a value
// that the setting's type cannot hold.
absl::Status OutOfRange(const std::string& min, const std::string& max,
                        std::optional<int64_t> found = {});

template <typename T>  // uint32_t or uint64_t
struct IntegerCodec {
  T min = 0;
  T max = 0;

  std::string type() const { return "integer, " + Print(min) + " to " + Print(max); }
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
  std::string type() const;
  absl::Status Read(const ConfigValue& value, const std::string& directory, double& out) const;
  absl::Status Check(double value) const;
  std::string Print(double value) const;
};

// "512MiB", or a number of bytes.
struct SizeCodec {
  uint64_t min = 0;
  uint64_t max = 0;
  std::string type() const;
  absl::Status Read(const ConfigValue& value, const std::string& directory, uint64_t& out) const;
  absl::Status Check(uint64_t value) const;
  std::string Print(uint64_t value) const;
};

// "auto", which is kAutoBytes, or a size of at least one byte.
struct AutoSizeCodec {
  SizeCodec size;

  std::string type() const { return "\"auto\" | " + size.type(); }
  absl::Status Read(const ConfigValue& value, const std::string& directory, uint64_t& out) const;
  absl::Status Check(uint64_t value) const {
    return value == kAutoBytes ? absl::OkStatus() : size.Check(value);
  }
  std::string Print(uint64_t value) const {
    return value == kAutoBytes ? QuoteToml("auto") : size.Print(value);
  }
};

struct DurationCodec {
  Duration min{};
  Duration max{};
  std::string type() const;
  absl::Status Read(const ConfigValue& value, const std::string& directory, Duration& out) const;
  absl::Status Check(Duration value) const;
  std::string Print(Duration value) const;
};

// `path` relative to `directory`; an absolute path is unchanged.
std::string ResolvePath(const std::string& directory, const std::string& path);

// A path of a file or directory; empty = not set.
struct PathCodec {
  std::string type() const { return "path"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, std::string& out) const;
  absl::Status Check(const std::string& value) const;
  std::string Print(const std::string& value) const;
};

// "host:port", or "" = off.
struct ListenCodec {
  std::string type() const { return "host:port or \"\""; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, std::string& out) const;
  absl::Status Check(const std::string& value) const;
  std::string Print(const std::string& value) const { return QuoteToml(value); }
};

// The name of a model, or of a table without its model.
struct NameCodec {
  std::string type() const { return "name"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, std::string& out) const;
  absl::Status Check(const std::string& value) const;
  std::string Print(const std::string& value) const {
    return value.empty() ? "" : QuoteToml(value);
  }
};

struct NameListCodec {
  std::string type() const { return "list of names"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory,
                    std::vector<std::string>& out) const;
  absl::Status Check(const std::vector<std::string>& value) const;
  std::string Print(const std::vector<std::string>& value) const;
};

// Any text of one line; empty = not set.
struct TextCodec {
  std::string type() const { return "text"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, std::string& out) const;
  absl::Status Check(const std::string& value) const;
  std::string Print(const std::string& value) const {
    return value.empty() ? "" : QuoteToml(value);
  }
};

// Texts without blanks and commas.
struct TextListCodec {
  const char* what;

  std::string type() const { return what; }
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

template <typename Enum>
struct EnumCodec {
  std::vector<std::pair<Enum, std::string>> names;

  std::string type() const {
    std::string text;
    for (const auto& [value, name] : names) text += (text.empty() ? "" : " | ") + QuoteToml(name);
    return text;
  }
  absl::Status Read(const ConfigValue& value, const std::string&, Enum& out) const {
    const auto* given = std::get_if<std::string>(&value);
    if (given == nullptr) return WrongType(type().c_str(), value);
    for (const auto& [known, name] : names) {
      if (name != *given) continue;
      out = known;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("expected " + type() + ", found " + QuoteToml(*given));
  }
  absl::Status Check(Enum value) const {
    return Print(value).empty() ? absl::InvalidArgumentError("expected " + type())
                                : absl::OkStatus();
  }
  std::string Print(Enum value) const {
    for (const auto& [known, name] : names) {
      if (known == value) return QuoteToml(name);
    }
    return "";
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
