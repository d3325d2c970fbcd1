#include "hps/config.h"

#include <toml++/toml.h>
#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/logging.h"
#include "base/macros.h"
#include "import/formats/file.h"
#include "node/config_check.h"
#include "node/config_keys.h"
#include "node/config_settings.h"
#include "node/config_values.h"
#include "types/names.h"
#include "update/kafka_settings.h"

namespace hps {
namespace {

// Replaces control characters: the parser quotes its input, and a message must be one line.
std::string OneLine(std::string_view text) {
  std::string line;
  for (const char character : text) {
    const bool printable = static_cast<unsigned char>(character) >= ' ' && character != '\x7f';
    line += printable ? character : '?';
  }
  return line;
}

// The file being read: for messages, relative paths and origins.
struct FileContext {
  std::string path;
  std::string directory;
};

absl::Status ErrorAt(const FileContext& file, const toml::source_region& source,
                     const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(file.path, ":", source.begin.line, ":",
                                                  source.begin.column, ": ", status.message()));
}

absl::Status InvalidAt(const FileContext& file, const toml::source_region& source,
                       const std::string& message) {
  return ErrorAt(file, source, absl::InvalidArgumentError(message));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(const File file, File::OpenForReading(path));
  if (file.bytes_at_open() > kConfigBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a configuration file has at most ", kConfigBytesMax, " bytes"));
  }
  std::string text(file.bytes_at_open(), '\0');
  HPS_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

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

// The setting with this name or old name; null if there is none.
const Setting* FindSetting(const std::vector<Setting>& settings, const std::string& name) {
  for (const Setting& setting : settings) {
    if (setting.name == name || setting.old_name == name) return &setting;
  }
  return nullptr;
}

bool IsSection(std::string_view name) {
  for (const std::string& section : SectionNames()) {
    if (section == name) return true;
  }
  return false;
}

// A hint for the unknown `name` in `section` ("" = top level): the nearest setting or sub-section
// of that section, else a setting with that name in another section, the least nested one.
std::string Suggestion(const std::string& section, const std::string& name) {
  std::vector<std::string> here;
  std::string elsewhere;
  std::vector<std::string> known = SettingNames();
  for (std::string& part : SectionNames()) known.push_back(std::move(part));
  for (const std::string& full : known) {
    const size_t dot = full.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : full.substr(0, dot);
    const std::string last = full.substr(dot + 1);
    if (parent == section) here.push_back(last);
    if (last != name || dot == std::string::npos) continue;
    const auto depth = [](const std::string& of) { return std::count(of.begin(), of.end(), '.'); };
    if (elsewhere.empty() || depth(full) < depth(elsewhere)) elsewhere = full;
  }
  const std::string hint = NearestNameHint(name, here);
  if (!hint.empty() || elsewhere.empty()) return hint;
  return "; did you mean '" + elsewhere + "'?";
}

std::string OriginOf(const FileContext& file, const toml::node& node) {
  return absl::StrCat(file.path, ":", node.source().begin.line);
}

// Origins of the settings of one object: short name -> "file:line".
using Origins = std::map<std::string, std::string>;

// The settings that a table of the file may have, and the origins of those that it has.
struct SettingGroup {
  std::vector<Setting> settings;
  Origins origins{};
};

// Reads and checks one setting; `full_name` has its section.
absl::Status ReadSetting(const FileContext& file, const std::string& full_name,
                         const toml::key& key, const toml::node& node, SettingGroup& group) {
  const Setting* setting = FindSetting(group.settings, full_name);
  if (setting == nullptr) {
    const std::string_view advice = AdviceOnRetired(full_name);
    if (!advice.empty())
      return InvalidAt(file, key.source(), absl::StrCat(full_name, ": ", std::string(advice)));
    const size_t dot = full_name.rfind('.');
    const std::string section = dot == std::string::npos ? "" : full_name.substr(0, dot);
    return InvalidAt(file, key.source(),
                     absl::StrCat("unknown setting '", full_name, "'",
                                  Suggestion(section, std::string(key.str()))));
  }
  if (!group.origins.emplace(setting->short_name(), OriginOf(file, node)).second) {
    return InvalidAt(file, key.source(),
                     absl::StrCat("'", setting->name, "' is given twice, also by its old name '",
                                  std::string(setting->old_name), "'"));
  }
  if (full_name == setting->old_name) {
    LogWarning(absl::StrCat(OriginOf(file, node), ": setting '", full_name, "' is now called '",
                            setting->name, "'; the next version will refuse the old name"));
  }
  const ConfigValue value = ToConfigValue(node);
  if (const absl::Status read = setting->value->Read(value, file.directory); !read.ok()) {
    return ErrorAt(file, node.source(),
                   absl::Status(read.code(), absl::StrCat(setting->name, ": ", read.message())));
  }
  const absl::Status checked = CheckSetting(*setting);
  return checked.ok() ? checked : ErrorAt(file, node.source(), checked);
}

// The elements of [[name]], or an error when `node` is something else.
absl::StatusOr<const toml::array*> ArrayOfTables(const FileContext& file, const std::string& name,
                                                 const toml::node& node) {
  const toml::array* array = node.as_array();
  if (array == nullptr || (!array->empty() && !array->is_array_of_tables())) {
    return InvalidAt(file, node.source(),
                     absl::StrCat("'", name, "' must be written as [[", name, "]], found ",
                                  DescribeValue(ToConfigValue(node))));
  }
  return array;
}

// Reads one [[section]], which must name itself. `skipped` is the name of the arrays below it.
absl::StatusOr<Origins> ReadNamed(const FileContext& file, const std::string& section,
                                  const toml::table& table, std::string_view skipped,
                                  std::vector<Setting> settings) {
  SettingGroup group = {.settings = std::move(settings)};
  for (const auto& [key, node] : table) {
    if (key.str() == skipped) continue;
    const std::string name = absl::StrCat(section, ".", std::string(key.str()));
    HPS_RETURN_IF_ERROR(ReadSetting(file, name, key, node, group));
  }
  if (!group.origins.contains("name"))
    return InvalidAt(file, table.source(), absl::StrCat("a [[", section, "]] needs a name"));
  return std::move(group.origins);
}

void AddOrigins(const std::string& prefix, const Origins& origins, Config& config) {
  for (const auto& [name, origin] : origins) config.origin[prefix + name] = origin;
}

absl::Status ReadModel(const FileContext& file, const toml::table& table, Config& config) {
  ModelConfig& model = config.model.emplace_back();
  HPS_ASSIGN_OR_RETURN(const Origins origins,
                       ReadNamed(file, "model", table, "table", SettingsOf(model)));
  const std::string prefix = "model[" + model.name + "].";
  AddOrigins(prefix, origins, config);
  const toml::node* tables = table.get("table");
  if (tables == nullptr) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(const toml::array* array, ArrayOfTables(file, "model.table", *tables));
  for (const toml::node& element : *array) {
    TableConfig& budget = model.table.emplace_back();
    HPS_ASSIGN_OR_RETURN(
        const Origins table_origins,
        ReadNamed(file, "model.table", *element.as_table(), "", SettingsOf(budget)));
    AddOrigins(absl::StrCat(prefix, "table[", budget.name, "]."), table_origins, config);
  }
  return absl::OkStatus();
}

// The settings of [update.kafka]: any names; a dotted name is a table of tables in TOML.
absl::Status ReadKafka(const FileContext& file, const std::string& prefix, const toml::node& node,
                       Config& config) {
  const toml::table* const table = node.as_table();
  if (table == nullptr) {
    return InvalidAt(
        file, node.source(),
        absl::StrCat("'update.kafka' is a section, found ", DescribeValue(ToConfigValue(node))));
  }
  for (const auto& [key, value] : *table) {
    const std::string name = prefix + std::string(key.str());
    if (value.is_table()) {
      HPS_RETURN_IF_ERROR(ReadKafka(file, name + ".", value, config));
      continue;
    }
    std::string text;
    if (value.is_string()) {
      text = *value.value<std::string>();
    } else if (value.is_boolean()) {
      text = *value.value<bool>() ? "true" : "false";
    } else if (value.is_integer()) {
      text = std::to_string(*value.value<int64_t>());
    } else {
      return InvalidAt(file, value.source(),
                       absl::StrCat("update.kafka.", name,
                                    ": expected a text, a whole number or a boolean, found ",
                                    DescribeValue(ToConfigValue(value))));
    }
    config.update.kafka[name] = text;
    config.update.kafka_directory = file.directory;
    config.origin["update.kafka." + name] = OriginOf(file, value);
    const auto checked = KafkaSettings::Make({{name, text}}, file.directory);
    if (!checked.ok()) return ErrorAt(file, value.source(), checked.status());
  }
  return absl::OkStatus();
}

// Reads a section and the sections below it ([server] and [server.security]).
absl::Status ReadSection(const FileContext& file, const std::string& section,
                         const toml::table& table, Config& config) {
  SettingGroup group = {.settings = SettingsOf(config)};
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string full = section.empty() ? name : section + "." + name;
    if (full == "model") {
      HPS_ASSIGN_OR_RETURN(const toml::array* array, ArrayOfTables(file, "model", node));
      for (const toml::node& element : *array)
        HPS_RETURN_IF_ERROR(ReadModel(file, *element.as_table(), config));
      continue;
    }
    if (full == "update.kafka") {
      HPS_RETURN_IF_ERROR(ReadKafka(file, "", node, config));
      continue;
    }
    if (IsSection(full)) {
      if (!node.is_table()) {
        return InvalidAt(
            file, node.source(),
            absl::StrCat("'", full, "' is a section, found ", DescribeValue(ToConfigValue(node))));
      }
      HPS_RETURN_IF_ERROR(ReadSection(file, full, *node.as_table(), config));
      continue;
    }
    HPS_RETURN_IF_ERROR(ReadSetting(file, full, key, node, group));
  }
  AddOrigins(section + ".", group.origins, config);
  return absl::OkStatus();
}

// Sets the defaults that depend on the file.
void DeriveDefaults(const FileContext& file, Config& config) {
  // The default store must not depend on the working directory.
  if (!config.origin.contains("store.path"))
    config.store.path = ResolvePath(file.directory, config.store.path);
  if (!config.origin.contains("server.body_bytes_max"))
    config.server.body_bytes_max = DefaultBodyBytesMax(config.server);
}

// Means the same in a file anywhere.
std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return path.empty() || error ? path : absolute.lexically_normal().string();
}

void PrintLine(const std::string& name, const std::string& value, const std::string& origin_name,
               const Config& config, std::string& text) {
  if (value.empty()) return;
  const auto origin = config.origin.find(origin_name);
  // A file name may have line breaks; a comment must not.
  absl::StrAppend(&text, name, " = ", value, "  # ",
                  origin == config.origin.end() ? "default" : OneLine(origin->second), "\n");
}

}  // namespace

absl::StatusOr<Config> LoadConfig(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const FileContext file = {.path = path,
                            .directory = std::filesystem::path(path).parent_path().string()};
  // Probably a ps.json of HugeCTR.
  if (const size_t begin = text.find_first_not_of(" \t\r\n");
      begin != std::string::npos && text[begin] == '{') {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": expected TOML, found JSON; `hps convert-config` makes an hps.toml of a ps.json of "
        "HugeCTR"));
  }
  if (const std::optional<TextPlace> deep = FindDeepKey(text, kConfigKeyPartsMax)) {
    const toml::source_position begin = {.line = deep->line, .column = deep->column};
    return InvalidAt(
        file, {.begin = begin, .end = begin, .path = nullptr},
        absl::StrCat("a key of more than ", kConfigKeyPartsMax, " parts; no setting has so many"));
  }
  toml::table root;
  try {
    root = toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    return InvalidAt(file, error.source(), OneLine(error.description()));
  }
  Config config;
  HPS_RETURN_IF_ERROR(ReadSection(file, "", root, config));
  DeriveDefaults(file, config);
  if (const absl::Status status = ValidateConfig(config); !status.ok())
    return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
  return config;
}

std::string PrintConfig(const Config& given) {
  Config config = given;
  config.store.path = AbsolutePath(config.store.path);
  for (std::string* path :
       {&config.server.tls_certificate, &config.server.tls_key, &config.server.tls_client_ca,
        &config.server.token_file, &config.l2.redis.password_file, &config.l2.redis.tls_ca,
        &config.l2.redis.tls_certificate, &config.l2.redis.tls_key, &config.log.file}) {
    *path = AbsolutePath(*path);
  }
  std::string text;
  for (const Setting& setting : SettingsOf(config))
    PrintLine(setting.name, setting.value->Print(), setting.name, config, text);
  for (const auto& [name, value] : PrintableKafkaSettings(config.update.kafka)) {
    PrintLine("update.kafka." + name, QuoteToml(value), "update.kafka." + name, config, text);
  }
  const auto print_all = [&](const std::vector<Setting>& settings, const std::string& prefix) {
    for (const Setting& setting : settings) {
      PrintLine(setting.short_name(), setting.value->Print(), prefix + setting.short_name(), config,
                text);
    }
  };
  for (ModelConfig& model : config.model) {
    const std::string prefix = "model[" + model.name + "].";
    model.dense = AbsolutePath(model.dense);
    absl::StrAppend(&text, "[[model]]\n");
    print_all(SettingsOf(model), prefix);
    for (TableConfig& table : model.table) {
      table.l1_hot_keys = AbsolutePath(table.l1_hot_keys);
      absl::StrAppend(&text, "[[model.table]]\n");
      print_all(SettingsOf(table), absl::StrCat(prefix, "table[", table.name, "]."));
    }
  }
  return text;
}

}  // namespace hps
