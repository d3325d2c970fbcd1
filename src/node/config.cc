#include "hps/config.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/text.h"
#include "node/config_check.h"
#include "node/config_settings.h"
#include "node/config_values.h"
#include "node/toml_file.h"
#include "types/names.h"
#include "update/kafka_settings.h"

namespace hps {
namespace {

template <typename T>
ConfigValue ListOf(const toml::array& array) {
  std::vector<T> values;
  for (const toml::node& element : array) values.push_back(*element.value<T>());
  return values;
}

ConfigValue ToConfigValue(const toml::node& node) {
  if (node.is_boolean()) return *node.value<bool>();
  if (node.is_integer()) return *node.value<int64_t>();
  if (node.is_floating_point()) return *node.value<double>();
  if (node.is_string()) return *node.value<std::string>();
  if (node.is_table()) return OtherValue{"a table"};
  if (const toml::array* array = node.as_array()) {
    if (array->empty() || array->is_homogeneous(toml::node_type::integer))
      return ListOf<int64_t>(*array);
    if (array->is_homogeneous(toml::node_type::string)) return ListOf<std::string>(*array);
    return OtherValue{"a list of mixed or nested values"};
  }
  return OtherValue{"a date or time"};
}

// A hint for the unknown `name` in `section` ("" = top level): the nearest setting or sub-section
// of that section, else a setting with that name in another section, the least nested one.
std::string Suggestion(const std::string& section, const std::string& name) {
  std::vector<std::string> here;
  std::string elsewhere;
  for (const std::string& known : KnownNames()) {
    const size_t dot = known.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : known.substr(0, dot);
    const std::string last = known.substr(dot + 1);
    if (parent == section) here.push_back(last);
    if (last != name || parent.empty()) continue;
    const auto depth = [](const std::string& of) { return std::count(of.begin(), of.end(), '.'); };
    if (elsewhere.empty() || depth(known) < depth(elsewhere)) elsewhere = known;
  }
  const std::string hint = NearestNameHint(name, here);
  return hint.empty() && !elsewhere.empty() ? "; did you mean '" + elsewhere + "'?" : hint;
}

// Name of a setting -> where it was read: "file:line".
using Origins = std::map<std::string, std::string>;

// Reads a parsed file into a configuration, and checks its settings one by one.
class ConfigReader {
 public:
  ConfigReader(const std::string& path, Config& config)
      : path_(path),
        directory_(std::filesystem::path(path).parent_path().string()),
        config_(config) {}

  absl::Status Read(const toml::table& root) {
    HPS_RETURN_IF_ERROR(ReadSection("", root, SettingsOf(config_), config_.origin));
    // Defaults that depend on the file. The store's must not depend on the working directory.
    if (!config_.origin.contains("store.path"))
      config_.store.path = ResolvePath(directory_, config_.store.path);
    if (!config_.origin.contains("server.body_bytes_max"))
      config_.server.body_bytes_max = DefaultBodyBytesMax(config_.server);
    return absl::OkStatus();
  }

 private:
  absl::Status InvalidAt(const toml::source_region& source, const std::string& message) const {
    return WithPlace(path_, source.begin, absl::InvalidArgumentError(message));
  }

  std::string OriginOf(const toml::node& node) const {
    return absl::StrCat(path_, ":", node.source().begin.line);
  }

  // `settings` are those of this section and of the sections below it ([server] and
  // [server.security]).
  absl::Status ReadSection(const std::string& section, const toml::table& table,
                           const std::vector<Setting>& settings, Origins& origins) {
    for (const auto& [key, node] : table) {
      const std::string last(key.str());
      const std::string name = section.empty() ? last : absl::StrCat(section, ".", last);
      if (section == "model" && last == "table")
        continue;  // ReadModels reads it, for the model's name is known then
      const bool is_kafka = name == "update.kafka";
      const auto setting = std::find_if(settings.begin(), settings.end(), [&](const Setting& each) {
        return each.name == name || (!name.empty() && each.old_name == name);
      });
      if (setting != settings.end()) {
        HPS_RETURN_IF_ERROR(ReadSetting(*setting, key, name, node, origins));
      } else if (name == "model") {
        HPS_RETURN_IF_ERROR(ReadModels(node));
      } else if (is_kafka ||
                 std::any_of(settings.begin(), settings.end(),
                             [&](const Setting& each) { return each.section() == name; })) {
        const toml::table* const below = node.as_table();
        if (below == nullptr) {
          return InvalidAt(node.source(), absl::StrCat("'", name, "' is a section, found ",
                                                       DescribeValue(ToConfigValue(node))));
        }
        HPS_RETURN_IF_ERROR(is_kafka ? ReadKafka("", *below)
                                     : ReadSection(name, *below, settings, origins));
      } else if (const std::string_view advice = AdviceOnRetired(name); !advice.empty()) {
        return InvalidAt(key.source(), absl::StrCat(name, ": ", std::string(advice)));
      } else {
        return InvalidAt(key.source(),
                         absl::StrCat("unknown setting '", name, "'", Suggestion(section, last)));
      }
    }
    return absl::OkStatus();
  }

  // `name` is what the file calls the setting: its name or its old name.
  absl::Status ReadSetting(const Setting& setting, const toml::key& key, const std::string& name,
                           const toml::node& node, Origins& origins) const {
    if (!origins.emplace(setting.name, OriginOf(node)).second) {
      return InvalidAt(key.source(),
                       absl::StrCat("'", setting.name, "' is given twice, also by its old name '",
                                    std::string(setting.old_name), "'"));
    }
    if (name == setting.old_name) {
      LogWarning(absl::StrCat(OriginOf(node), ": setting '", name, "' is now called '",
                              setting.name, "'; the next version will refuse the old name"));
    }
    absl::Status status = setting.value->Read(ToConfigValue(node), directory_);
    status = status.ok()
                 ? CheckSetting(setting)
                 : absl::Status(status.code(), absl::StrCat(setting.name, ": ", status.message()));
    return WithPlace(path_, node.source().begin, status);
  }

  // The elements of [[name]], or an error when `node` is something else.
  absl::StatusOr<const toml::array*> ArrayOfTables(const std::string& name,
                                                   const toml::node& node) const {
    const toml::array* array = node.as_array();
    if (array == nullptr || (!array->empty() && !array->is_array_of_tables())) {
      return InvalidAt(node.source(),
                       absl::StrCat("'", name, "' must be written as [[", name, "]], found ",
                                    DescribeValue(ToConfigValue(node))));
    }
    return array;
  }

  absl::Status ReadModels(const toml::node& node) {
    HPS_ASSIGN_OR_RETURN(const toml::array* models, ArrayOfTables("model", node));
    for (const toml::node& element : *models) {
      ModelConfig& model = config_.model.emplace_back();
      const toml::table& section = *element.as_table();
      HPS_RETURN_IF_ERROR(ReadNamed("model", section, SettingsOf(model), "model", model.name));
      const toml::node* const below = section.get("table");
      if (below == nullptr) continue;
      HPS_ASSIGN_OR_RETURN(const toml::array* tables, ArrayOfTables("model.table", *below));
      for (const toml::node& each : *tables) {
        TableConfig& table = model.table.emplace_back();
        HPS_RETURN_IF_ERROR(ReadNamed("model.table", *each.as_table(), SettingsOf(table),
                                      absl::StrCat("model[", model.name, "].table"), table.name));
      }
    }
    return absl::OkStatus();
  }

  // Reads one [[section]], which must set `name`. Its origins get the names "prefix[name].setting".
  absl::Status ReadNamed(const std::string& section, const toml::table& table,
                         const std::vector<Setting>& settings, const std::string& prefix,
                         const std::string& name) {
    Origins origins;
    HPS_RETURN_IF_ERROR(ReadSection(section, table, settings, origins));
    if (!origins.contains(section + ".name"))
      return InvalidAt(table.source(), absl::StrCat("a [[", section, "]] needs a name"));
    for (const auto& [setting, origin] : origins)
      config_.origin[absl::StrCat(prefix, "[", name, "]", setting.substr(section.size()))] = origin;
    return absl::OkStatus();
  }

  // The settings of [update.kafka]: any names; a dotted name is a table of tables in TOML.
  absl::Status ReadKafka(const std::string& prefix, const toml::table& table) {
    for (const auto& [key, value] : table) {
      const std::string name = prefix + std::string(key.str());
      std::string text;
      if (value.is_table()) {
        HPS_RETURN_IF_ERROR(ReadKafka(name + ".", *value.as_table()));
        continue;
      }
      if (value.is_string()) {
        text = *value.value<std::string>();
      } else if (value.is_boolean()) {
        text = *value.value<bool>() ? "true" : "false";
      } else if (value.is_integer()) {
        text = std::to_string(*value.value<int64_t>());
      } else {
        return InvalidAt(value.source(),
                         absl::StrCat("update.kafka.", name,
                                      ": expected a text, a whole number or a boolean, found ",
                                      DescribeValue(ToConfigValue(value))));
      }
      config_.update.kafka[name] = text;
      config_.update.kafka_directory = directory_;
      config_.origin["update.kafka." + name] = OriginOf(value);
      HPS_RETURN_IF_ERROR(WithPlace(path_, value.source().begin,
                                    KafkaSettings::Make({{name, text}}, directory_).status()));
    }
    return absl::OkStatus();
  }

  const std::string& path_;
  const std::string directory_;  // relative paths are relative to it
  Config& config_;
};

}  // namespace

absl::StatusOr<Config> LoadConfig(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(const std::string text, ReadTomlText(path));
  // Probably a ps.json of HugeCTR.
  if (const size_t begin = text.find_first_not_of(" \t\r\n");
      begin != std::string::npos && text[begin] == '{') {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": expected TOML, found JSON; `hps convert-config` makes an hps.toml of a ps.json of "
        "HugeCTR"));
  }
  HPS_ASSIGN_OR_RETURN(const toml::table root, ParseToml(path, text));
  Config config;
  HPS_RETURN_IF_ERROR(ConfigReader(path, config).Read(root));
  if (const absl::Status status = ValidateConfig(config); !status.ok())
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  return config;
}

std::string PrintConfig(const Config& given) {
  Config config = given;  // settings refer to members that they could change
  std::error_code error;
  const std::string directory = std::filesystem::current_path(error).string();
  std::string text;
  const auto print = [&](const std::string& name, const std::string& value,
                         const std::string& origin_name) {
    const auto origin = config.origin.find(origin_name);
    if (value.empty()) return;
    // A file name may have line breaks; a comment must not.
    absl::StrAppend(&text, name, " = ", value, "  # ",
                    origin == config.origin.end() ? "default" : PrintableText(origin->second),
                    "\n");
  };
  const auto print_each = [&](const std::vector<Setting>& settings, const std::string& prefix) {
    for (const Setting& setting : settings)
      print(setting.short_name(), setting.value->Print(directory), prefix + setting.short_name());
  };
  for (const Setting& setting : SettingsOf(config))
    print(setting.name, setting.value->Print(directory), setting.name);
  for (const auto& [name, value] : PrintableKafkaSettings(config.update.kafka))
    print("update.kafka." + name, QuoteToml(value), "update.kafka." + name);
  for (ModelConfig& model : config.model) {
    const std::string prefix = absl::StrCat("model[", model.name, "].");
    absl::StrAppend(&text, "[[model]]\n");
    print_each(SettingsOf(model), prefix);
    for (TableConfig& table : model.table) {
      absl::StrAppend(&text, "[[model.table]]\n");
      print_each(SettingsOf(table), absl::StrCat(prefix, "table[", table.name, "]."));
    }
  }
  return text;
}

}  // namespace hps
