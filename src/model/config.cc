#include "hps/config.h"

#include <toml++/toml.h>
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "hps/units.h"
#include "import/formats/file.h"
#include "model/config_keys.h"
#include "model/config_settings.h"
#include "model/config_values.h"
#include "model/setting_list.h"
#include "types/names.h"

namespace hps {
namespace {

// The parser quotes what it saw, which may be a line break; a message is one line.
std::string OneLine(std::string_view text) {
  std::string line;
  for (const char character : text) {
    const bool printable = static_cast<unsigned char>(character) >= ' ' && character != '\x7f';
    line += printable ? character : '?';
  }
  return line;
}

// What every step of reading one file needs: for messages, relative paths and origins.
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

template <typename Target>
const Setting<Target>* FindSetting(const std::vector<Setting<Target>>& settings,
                                   std::string_view section, std::string_view name) {
  for (const Setting<Target>& setting : settings) {
    if (setting.section == section && setting.name == name) return &setting;
  }
  return nullptr;
}

bool IsSection(std::string_view name) {
  for (const std::string& section : SectionNames()) {
    if (section == name) return true;
  }
  return false;
}

// What was probably meant by `name` in `section` ("" = at the top): a setting or sub-section of the
// same section, else a setting of that name elsewhere.
std::string Suggestion(const std::string& section, const std::string& name) {
  std::vector<std::string> here;
  std::string elsewhere;
  const auto consider = [&](std::string_view setting_section, std::string_view setting_name) {
    if (setting_section == section) here.emplace_back(setting_name);
    if (elsewhere.empty() && setting_name == name)
      elsewhere = absl::StrCat(std::string(setting_section), ".", std::string(setting_name));
  };
  for (const auto& setting : ConfigSettings()) consider(setting.section, setting.name);
  for (const auto& setting : ModelSettings()) consider(setting.section, setting.name);
  for (const auto& setting : TableSettings()) consider(setting.section, setting.name);
  for (const std::string& known : SectionNames()) {
    const size_t dot = known.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : known.substr(0, dot);
    if (parent == section) here.push_back(known.substr(dot + 1));
  }
  const std::string meant = DidYouMean(name, here);
  if (!meant.empty() || elsewhere.empty()) return meant;
  return "; did you mean '" + elsewhere + "'?";
}

absl::Status UnknownSetting(const FileContext& file, const std::string& section,
                            const toml::key& key) {
  const std::string name(key.str());
  const std::string full = section.empty() ? name : section + "." + name;
  return InvalidAt(file, key.source(),
                   absl::StrCat("unknown setting '", full, "'", Suggestion(section, name)));
}

// Reads one setting and checks it.
template <typename Target>
absl::Status ReadSetting(const FileContext& file, const Setting<Target>& setting,
                         const toml::node& node, Target& target) {
  const absl::Status read = setting.read(ToConfigValue(node), file.directory, target);
  if (!read.ok()) {
    return ErrorAt(
        file, node.source(),
        absl::Status(read.code(), absl::StrCat(std::string(setting.section), ".",
                                               std::string(setting.name), ": ", read.message())));
  }
  const absl::Status checked = CheckSetting(setting, target);
  return checked.ok() ? checked : ErrorAt(file, node.source(), checked);
}

std::string OriginOf(const FileContext& file, const toml::node& node) {
  return absl::StrCat(file.path, ":", node.source().begin.line);
}

// Origins of one table of settings: short name -> "file:line".
using Origins = std::map<std::string, std::string>;

// Reads a table whose entries are settings of `section`. [[model.table]] is left to the caller.
template <typename Target>
absl::StatusOr<Origins> ReadTable(const FileContext& file,
                                  const std::vector<Setting<Target>>& settings,
                                  const std::string& section, const toml::table& table,
                                  Target& target) {
  Origins origins;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (section == "model" && name == "table") continue;
    const Setting<Target>* setting = FindSetting(settings, section, name);
    if (setting == nullptr) return UnknownSetting(file, section, key);
    HPS_RETURN_IF_ERROR(ReadSetting(file, *setting, node, target));
    origins[name] = OriginOf(file, node);
  }
  return origins;
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

absl::Status ReadModel(const FileContext& file, const toml::table& table, Config& config) {
  ModelConfig model;
  HPS_ASSIGN_OR_RETURN(const Origins origins,
                       ReadTable(file, ModelSettings(), "model", table, model));
  if (model.name.empty()) return InvalidAt(file, table.source(), "a [[model]] needs a name");
  const std::string prefix = "model[" + model.name + "].";
  for (const auto& [name, origin] : origins) config.origin[prefix + name] = origin;
  if (const toml::node* overrides = table.get("table")) {
    HPS_ASSIGN_OR_RETURN(const toml::array* array, ArrayOfTables(file, "model.table", *overrides));
    for (const toml::node& element : *array) {
      TableConfig override_of_table;
      HPS_ASSIGN_OR_RETURN(
          const Origins table_origins,
          ReadTable(file, TableSettings(), "model.table", *element.as_table(), override_of_table));
      if (override_of_table.name.empty())
        return InvalidAt(file, element.source(), "a [[model.table]] needs a name");
      for (const auto& [name, origin] : table_origins)
        config.origin[prefix + "table[" + override_of_table.name + "]." + name] = origin;
      model.table.push_back(std::move(override_of_table));
    }
  }
  config.model.push_back(std::move(model));
  return absl::OkStatus();
}

// Reads a section and the sections below it ([l2] and [l2.redis]).
absl::Status ReadSection(const FileContext& file, const std::string& section,
                         const toml::table& table, Config& config) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const std::string full = section.empty() ? name : section + "." + name;
    if (full == "model") {
      HPS_ASSIGN_OR_RETURN(const toml::array* array, ArrayOfTables(file, "model", node));
      for (const toml::node& element : *array)
        HPS_RETURN_IF_ERROR(ReadModel(file, *element.as_table(), config));
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
    const Setting<Config>* setting = FindSetting(ConfigSettings(), section, name);
    if (setting == nullptr) return UnknownSetting(file, section, key);
    HPS_RETURN_IF_ERROR(ReadSetting(file, *setting, node, config));
    config.origin[full] = OriginOf(file, node);
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const ModelConfig& model) {
  for (const Setting<ModelConfig>& setting : ModelSettings())
    HPS_RETURN_IF_ERROR(CheckSetting(setting, model));
  std::set<std::string> names;
  for (const TableConfig& table : model.table) {
    for (const Setting<TableConfig>& setting : TableSettings())
      HPS_RETURN_IF_ERROR(CheckSetting(setting, table));
    if (!names.insert(table.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("model '", model.name, "': [[model.table]] '",
                                                     table.name, "' is given twice"));
    }
    const bool is_served =
        model.tables.empty() ||
        std::find(model.tables.begin(), model.tables.end(), table.name) != model.tables.end();
    if (!is_served) {
      return absl::InvalidArgumentError(absl::StrCat("model '", model.name, "': [[model.table]] '",
                                                     table.name, "' is not one of its `tables`",
                                                     DidYouMean(table.name, model.tables)));
    }
    const bool l2_twice = table.l2_share.has_value() && table.l2_bytes.has_value();
    if (l2_twice || (table.l1_share.has_value() && table.l1_bytes.has_value())) {
      const std::string level = l2_twice ? "l2" : "l1";
      return absl::InvalidArgumentError(absl::StrCat("model '", model.name, "', table '",
                                                     table.name, "': ", level, "_share and ", level,
                                                     "_bytes exclude each other"));
    }
  }
  return absl::OkStatus();
}

// What tables are given by name must be there, whatever the store holds.
absl::Status CheckBudgets(const Config& config, const std::string& level, uint64_t bytes_max,
                          std::optional<uint64_t> TableConfig::*member) {
  uint64_t bytes_left = bytes_max;
  for (const ModelConfig& model : config.model) {
    for (const TableConfig& table : model.table) {
      const uint64_t bytes = (table.*member).value_or(0);
      if (bytes > bytes_left) {
        return absl::InvalidArgumentError(
            absl::StrCat("model '", model.name, "', table '", table.name, "': ", level,
                         "_bytes = ", FormatByteSize(bytes), ", but ", level, ".bytes_max = ",
                         FormatByteSize(bytes_max), " has ", FormatByteSize(bytes_left), " left"));
      }
      bytes_left -= bytes;
    }
  }
  return absl::OkStatus();
}

// Of the settings whose defaults depend on the file.
void DeriveDefaults(const FileContext& file, Config& config) {
  // Else a command would depend on where it is typed.
  if (!config.origin.contains("store.path"))
    config.store.path = ResolvePath(file.directory, config.store.path);
  if (!config.origin.contains("server.body_bytes_max"))
    config.server.body_bytes_max = DefaultBodyBytesMax(config.server);
}

// Relative to nothing, so that it means the same in any file.
std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return path.empty() || error ? path : absolute.lexically_normal().string();
}

void PrintLine(const std::string& name, const std::string& value, const std::string& origin_name,
               const Config& config, std::string& text) {
  if (value.empty()) return;
  const auto origin = config.origin.find(origin_name);
  // A comment is one line, whatever the file is called.
  absl::StrAppend(&text, name, " = ", value, "  # ",
                  origin == config.origin.end() ? "default" : OneLine(origin->second), "\n");
}

}  // namespace

absl::StatusOr<Config> LoadConfig(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const FileContext file = {.path = path,
                            .directory = std::filesystem::path(path).parent_path().string()};
  // A ps.json of the first implementation, mostly.
  if (const size_t begin = text.find_first_not_of(" \t\r\n");
      begin != std::string::npos && text[begin] == '{') {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": expected TOML, found JSON; docs/from_hugectr.md tells what became of each setting "
        "of a ps.json"));
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

absl::Status ValidateConfig(const Config& config) {
  for (const Setting<Config>& setting : ConfigSettings())
    HPS_RETURN_IF_ERROR(CheckSetting(setting, config));
  if (config.l2.resolution_target > config.l2.overflow_margin) {
    return absl::InvalidArgumentError(absl::StrCat(
        "l2.resolution_target = ", config.l2.resolution_target,
        ": expected at most l2.overflow_margin, which is ", config.l2.overflow_margin));
  }
  HPS_RETURN_IF_ERROR(CheckServer(config.server));
  std::set<std::string> names;
  for (const ModelConfig& model : config.model) {
    HPS_RETURN_IF_ERROR(CheckModel(model));
    if (!names.insert(model.name).second)
      return absl::InvalidArgumentError(absl::StrCat("model '", model.name, "' is given twice"));
  }
  if (config.l2.kind == L2Kind::kMemory) {
    HPS_RETURN_IF_ERROR(CheckBudgets(config, "l2", config.l2.bytes_max, &TableConfig::l2_bytes));
  }
  return CheckBudgets(config, "l1", config.l1.bytes_max, &TableConfig::l1_bytes);
}

std::string PrintConfig(const Config& given) {
  Config config = given;
  config.store.path = AbsolutePath(config.store.path);
  for (std::string* path :
       {&config.server.tls_certificate, &config.server.tls_key, &config.server.tls_client_ca,
        &config.server.token_file, &config.log.file}) {
    *path = AbsolutePath(*path);
  }
  for (ModelConfig& model : config.model) {
    model.dense = AbsolutePath(model.dense);
    for (TableConfig& table : model.table) table.l1_hot_keys = AbsolutePath(table.l1_hot_keys);
  }
  std::string text;
  for (const Setting<Config>& setting : ConfigSettings()) {
    const std::string name =
        absl::StrCat(std::string(setting.section), ".", std::string(setting.name));
    PrintLine(name, setting.print(config), name, config, text);
  }
  for (const ModelConfig& model : config.model) {
    const std::string prefix = "model[" + model.name + "].";
    absl::StrAppend(&text, "[[model]]\n");
    for (const Setting<ModelConfig>& setting : ModelSettings()) {
      const std::string name(setting.name);
      PrintLine(name, setting.print(model), prefix + name, config, text);
    }
    for (const TableConfig& table : model.table) {
      absl::StrAppend(&text, "[[model.table]]\n");
      for (const Setting<TableConfig>& setting : TableSettings()) {
        const std::string name(setting.name);
        PrintLine(name, setting.print(table), prefix + "table[" + table.name + "]." + name, config,
                  text);
      }
    }
  }
  return text;
}

}  // namespace hps
