// How each type of setting is read from a configuration file, checked and printed as TOML.
//
// A codec is a value with five members: type() for the documentation; Read, whose error says what
// was expected; Check for the range, used on values that were set in code too; and Print, which
// gives TOML that Read reads back ("" = not set).
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
#include "model/config_settings.h"

namespace hps {

// INVALID_ARGUMENT: "expected <what>, found <value's kind>".
absl::Status WrongType(const char* what, const ConfigValue& value);

// A TOML string with quotes and escapes.
std::string QuoteToml(const std::string& text);

struct BooleanCodec {
  std::string type() const { return "boolean"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, bool& out) const;
  absl::Status Check(bool) const { return absl::OkStatus(); }
  std::string Print(bool value) const { return value ? "true" : "false"; }
};

struct IntegerCodec {
  uint32_t min = 0;
  uint32_t max = 0;
  std::string type() const;
  absl::Status Read(const ConfigValue& value, const std::string& directory, uint32_t& out) const;
  absl::Status Check(uint32_t value) const;
  std::string Print(uint32_t value) const { return std::to_string(value); }
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

// A number of things, which may be beyond 32 bits.
struct CountCodec {
  uint64_t min = 0;
  uint64_t max = 0;
  std::string type() const;
  absl::Status Read(const ConfigValue& value, const std::string& directory, uint64_t& out) const;
  absl::Status Check(uint64_t value) const;
  std::string Print(uint64_t value) const { return std::to_string(value); }
};

struct DurationCodec {
  Duration min{};
  Duration max{};
  std::string type() const;
  absl::Status Read(const ConfigValue& value, const std::string& directory, Duration& out) const;
  absl::Status Check(Duration value) const;
  std::string Print(Duration value) const;
};

// A path of a configuration file, which is relative to that file's directory.
std::string ResolvePath(const std::string& directory, const std::string& path);

// A path of a file or directory; empty = not set.
struct PathCodec {
  std::string type() const { return "path"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, std::string& out) const;
  absl::Status Check(const std::string& value) const;
  std::string Print(const std::string& value) const;
};

// "host:port".
struct AddressCodec {
  std::string type() const { return "host:port"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory, std::string& out) const;
  absl::Status Check(const std::string& value) const;
  std::string Print(const std::string& value) const { return QuoteToml(value); }
};

// "host:port", or "" where it is off.
struct ListenCodec {
  std::string type() const { return "host:port or \"\""; }
  absl::Status Read(const ConfigValue& value, const std::string& directory,
                    std::string& out) const {
    return AddressCodec{}.Read(value, directory, out);
  }
  absl::Status Check(const std::string& value) const {
    return value.empty() ? absl::OkStatus() : AddressCodec{}.Check(value);
  }
  std::string Print(const std::string& value) const { return QuoteToml(value); }
};

struct AddressListCodec {
  std::string type() const { return "list of host:port"; }
  absl::Status Read(const ConfigValue& value, const std::string& directory,
                    std::vector<std::string>& out) const;
  absl::Status Check(const std::vector<std::string>& value) const;
  std::string Print(const std::vector<std::string>& value) const;
};

// A model's or a table's name.
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

// A setting that need not be set.
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
