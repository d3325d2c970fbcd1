// The list of all settings. It drives parsing, checking and printing; docs/configuration.md, which
// tells what they mean, has the same names, types and defaults.
//
// A setting refers to one member of a configuration object. It reads that member from a value of
// the file, checks it, and prints it as TOML. Nothing here depends on the TOML parser: a value of
// the file arrives as a ConfigValue.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "hps/config.h"

namespace hps {

// A value that no setting accepts (a table, a date, a mixed list); `kind` describes it.
struct OtherValue {
  std::string kind;
};
using ConfigValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                                 std::vector<std::string>, OtherValue>;

// "a boolean", "the string \"x\"", ...: for errors.
std::string DescribeValue(const ConfigValue& value);

// One member of a configuration object, with the codec (config_values.h) that knows its type.
class SettingValue {
 public:
  virtual ~SettingValue() = default;

  // As in docs/configuration.md, which a test compares: "size", "\"memory\" | \"none\"".
  virtual std::string type() const = 0;
  // Relative paths are relative to `directory`. Errors: INVALID_ARGUMENT, with what was expected;
  // UNIMPLEMENTED for a value that this build can never satisfy.
  virtual absl::Status Read(const ConfigValue& value, const std::string& directory) = 0;
  // Errors: INVALID_ARGUMENT, with the range.
  virtual absl::Status Check() const = 0;
  // TOML; "" = not set. A relative path is printed as one in `directory`.
  virtual std::string Print(const std::string& directory) const = 0;
};

struct Setting {
  std::string name;           // with its section: "store.path", "model.table.l2_share"
  std::string_view old_name;  // still accepted, with a warning; "" = none
  std::unique_ptr<SettingValue> value;

  std::string section() const { return name.substr(0, name.rfind('.')); }
  std::string short_name() const { return name.substr(name.rfind('.') + 1); }
};

// The settings of one object, which must outlive them.
std::vector<Setting> SettingsOf(Config& config);
std::vector<Setting> SettingsOf(ModelConfig& model);
std::vector<Setting> SettingsOf(TableConfig& table);

// What to do about a file that has this setting, which is none any more; "" for every other name.
std::string_view AdviceOnRetired(std::string_view name);

// Applies `setting.value->Check()`. The error's message begins with the setting's name and value.
absl::Status CheckSetting(const Setting& setting);

// The names of all settings, in the order of the documentation, models and their tables last; then
// those of all sections in this order.
std::vector<std::string> KnownNames();

}  // namespace hps
