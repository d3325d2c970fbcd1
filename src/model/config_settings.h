// The one table of all settings: it drives parsing, checking, printing and docs/configuration.md.
//
// A setting knows how to read itself from a value of the file, how to check itself and how to print
// itself as TOML. Nothing here knows TOML's parser: a value arrives as a ConfigValue.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "hps/config.h"

namespace hps {

// A value that no setting takes (a table, a date, a mixed list); `kind` says what it is.
struct OtherValue {
  std::string kind;
};
using ConfigValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                                 std::vector<std::string>, OtherValue>;

// "a boolean", "a string", ...: for errors.
std::string DescribeValue(const ConfigValue& value);

// A setting of Target (Config, ModelConfig or TableConfig).
template <typename Target>
struct Setting {
  std::string_view section;  // "store", "l2.redis", "model", "model.table"
  std::string_view name;     // within the section
  std::string type;          // as documented: "size", "\"memory\" | \"none\""
  std::string_view meaning;  // one sentence, as documented
  // The part of the project that this build lacks and that the setting is for; empty = none. Such
  // a setting is read and checked, but may only have its default value.
  std::string_view awaits;
  // Errors: INVALID_ARGUMENT with what was expected, UNIMPLEMENTED for a value that no machine can
  // have in this build; `directory` is what paths are relative to.
  std::function<absl::Status(const ConfigValue& value, const std::string& directory,
                             Target& target)>
      read;
  std::function<absl::Status(const Target& target)> check;
  std::function<std::string(const Target& target)> print;  // TOML; "" = not set
};

const std::vector<Setting<Config>>& ConfigSettings();
const std::vector<Setting<ModelConfig>>& ModelSettings();
const std::vector<Setting<TableConfig>>& TableSettings();

// Applies `setting.check` and refuses what this build lacks.
// Errors: INVALID_ARGUMENT, UNIMPLEMENTED; the message begins with the setting's full name.
template <typename Target>
absl::Status CheckSetting(const Setting<Target>& setting, const Target& target);

// docs/configuration.md's table of one section, from the settings.
std::string SettingsAsMarkdown(std::string_view section);

// The sections in the order of the documentation, "model" and "model.table" last.
std::vector<std::string> SectionNames();

}  // namespace hps
