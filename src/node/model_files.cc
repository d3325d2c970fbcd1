#include "node/model_files.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "import/model_toml.h"
#include "network/onnx/model.h"
#include "node/toml_file.h"
#include "types/names.h"

namespace hps {
namespace {

// model.toml while it is read.
class ModelFileReader {
 public:
  explicit ModelFileReader(std::string directory)
      : directory_(std::move(directory)), path_(directory_ + "/" + kModelFile) {}

  absl::StatusOr<ModelFiles> Read() {
    HPS_ASSIGN_OR_RETURN(const std::string text, ReadTomlText(path_));
    HPS_ASSIGN_OR_RETURN(const toml::table file, ParseToml(path_, text));
    HPS_RETURN_IF_ERROR(CheckKeys(file, "", {"name", "tables", "network"}));
    HPS_ASSIGN_OR_RETURN(const std::string name, Text(file, "name", "a model's name"));
    ModelFiles files;
    HPS_ASSIGN_OR_RETURN(files.tables, Tables(file));
    const toml::node* const network = file.get("network");
    if (network == nullptr) return files;
    if (!network->is_table()) return Invalid(*network, "'network' is a section");
    HPS_ASSIGN_OR_RETURN(files.network, Network(*network->as_table(), files.tables));
    return files;
  }

 private:
  absl::Status Invalid(const toml::node& at, const std::string& what) const {
    return WithPlace(path_, at.source().begin, absl::InvalidArgumentError(what));
  }

  absl::Status CheckKeys(const toml::table& table, const std::string& prefix,
                         std::initializer_list<const char*> known) const {
    const std::vector<std::string> names(known.begin(), known.end());
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      return Invalid(node, absl::StrCat("there is no setting '", prefix, name, "'",
                                        NearestNameHint(name, names)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Text(const toml::table& table, const char* key,
                                   const char* what) const {
    const toml::node* const node = table.get(key);
    if (node == nullptr)
      return Invalid(table, absl::StrCat("'", key, "' is missing: expected ", what));
    const auto text = node->value_exact<std::string>();
    if (!text.has_value() || text->empty())
      return Invalid(*node, absl::StrCat("'", key, "': expected ", what));
    return *text;
  }

  absl::StatusOr<std::vector<std::string>> Tables(const toml::table& file) const {
    const toml::node* const node = file.get("tables");
    if (node == nullptr) return Invalid(file, "'tables' is missing: expected a list of names");
    const toml::array* const array = node->as_array();
    if (array == nullptr || array->empty())
      return Invalid(*node, "'tables': expected a list of names");
    std::vector<std::string> tables;
    for (const toml::node& element : *array) {
      const auto name = element.value_exact<std::string>();
      if (!name.has_value()) return Invalid(element, "'tables': expected a list of names");
      const absl::Status valid = ValidateTableName("model/" + *name);
      if (!valid.ok()) return Invalid(element, std::string(valid.message()));
      if (std::find(tables.begin(), tables.end(), *name) != tables.end())
        return Invalid(element, absl::StrCat("'tables' names '", *name, "' twice"));
      tables.push_back(*name);
    }
    return tables;
  }

  absl::StatusOr<ModelNetwork> Network(const toml::table& section,
                                       const std::vector<std::string>& tables) const {
    HPS_RETURN_IF_ERROR(CheckKeys(section, "network.", {"file", "input"}));
    HPS_ASSIGN_OR_RETURN(const std::string file, Text(section, "file", "a file of this folder"));
    const std::filesystem::path path = std::filesystem::path(directory_) / file;
    if (std::filesystem::path(file).has_parent_path())
      return Invalid(*section.get("file"), "'file': expected a file of this folder");
    std::vector<NetworkInput> inputs;
    if (const toml::node* const node = section.get("input")) {
      const toml::array* const array = node->as_array();
      if (array == nullptr) return Invalid(*node, "an input is a [[network.input]]");
      for (const toml::node& element : *array) {
        if (!element.is_table()) return Invalid(element, "an input is a [[network.input]]");
        HPS_ASSIGN_OR_RETURN(NetworkInput input, Input(*element.as_table(), tables));
        inputs.push_back(std::move(input));
      }
    }
    HPS_ASSIGN_OR_RETURN(ModelNetwork network, ReadNetworkFile(path.string()));
    network.inputs = std::move(inputs);
    network.digest = NetworkDigest(network);
    return network;
  }

  absl::StatusOr<NetworkInput> Input(const toml::table& section,
                                     const std::vector<std::string>& tables) const {
    HPS_RETURN_IF_ERROR(CheckKeys(section, "network.input.", {"name", "table", "pooling"}));
    NetworkInput input;
    HPS_ASSIGN_OR_RETURN(input.name, Text(section, "name", "the name of an input of the network"));
    if (section.get("table") == nullptr) {
      if (const toml::node* const pooling = section.get("pooling"))
        return Invalid(*pooling, "'pooling' is for an input that has a 'table'");
      return input;
    }
    HPS_ASSIGN_OR_RETURN(input.table, Text(section, "table", "the name of a table"));
    if (std::find(tables.begin(), tables.end(), input.table) == tables.end()) {
      return Invalid(*section.get("table"),
                     absl::StrCat("'tables' does not have '", input.table, "'",
                                  NearestNameHint(input.table, tables)));
    }
    if (section.get("pooling") == nullptr) return input;
    HPS_ASSIGN_OR_RETURN(const std::string pooling,
                         Text(section, "pooling", "\"sum\", \"mean\" or \"none\""));
    for (const RowPooling each : {RowPooling::kSum, RowPooling::kMean, RowPooling::kNone}) {
      input.pooling = each;
      if (pooling == PoolingName(each)) return input;
    }
    return Invalid(
        *section.get("pooling"),
        absl::StrCat("'pooling': expected \"sum\", \"mean\" or \"none\", found \"", pooling, "\""));
  }

  const std::string directory_;
  const std::string path_;
};

}  // namespace

absl::StatusOr<std::optional<ModelFiles>> ReadModelFiles(const std::string& directory) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::path(directory) / kModelFile;
  if (!std::filesystem::exists(std::filesystem::symlink_status(path, error)))
    return std::optional<ModelFiles>();
  HPS_ASSIGN_OR_RETURN(ModelFiles files, ModelFileReader(directory).Read());
  return std::optional<ModelFiles>(std::move(files));
}

absl::StatusOr<ModelNetwork> ReadNetworkFile(const std::string& path) {
  HPS_ASSIGN_OR_RETURN(const OnnxModel model,
                       OnnxModel::Read(path, {.bytes_max = kNetworkBytesMax}));
  ModelNetwork network;
  HPS_ASSIGN_OR_RETURN(network.onnx, model.Serialize());
  network.digest = NetworkDigest(network);
  return network;
}

absl::StatusOr<ModelNetwork> ReadNetworkInstead(const std::string& path,
                                                const ModelNetwork* imported,
                                                std::span<const TableSpec> tables) {
  HPS_ASSIGN_OR_RETURN(const OnnxModel model,
                       OnnxModel::Read(path, {.bytes_max = kNetworkBytesMax}));
  ModelNetwork network;
  HPS_ASSIGN_OR_RETURN(network.onnx, model.Serialize());
  for (const OnnxValue& value : model.graph().inputs) {
    if (imported != nullptr) {
      const auto known =
          std::find_if(imported->inputs.begin(), imported->inputs.end(),
                       [&](const NetworkInput& input) { return input.name == value.name; });
      if (known != imported->inputs.end()) {
        network.inputs.push_back(*known);
        continue;
      }
    }
    const bool is_table = std::any_of(tables.begin(), tables.end(), [&](const TableSpec& table) {
      return table.name.substr(table.name.find('/') + 1) == value.name;
    });
    if (!is_table) continue;
    const bool is_flat = value.dims.size() < 3;
    network.inputs.push_back({.name = value.name,
                              .table = value.name,
                              .pooling = is_flat ? RowPooling::kSum : RowPooling::kNone});
  }
  network.digest = NetworkDigest(network);
  return network;
}

}  // namespace hps
