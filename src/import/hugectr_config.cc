#include "import/hugectr_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/json_writer.h"
#include "base/macros.h"
#include "base/text.h"
#include "hps/table_spec.h"
#include "import/hugectr_settings.h"
#include "import/model_toml.h"

namespace hps {
namespace {

using Json = nlohmann::json;

// Whether `name` is one of `names`, which are separated by blanks.
bool HasName(std::string_view names, std::string_view name) {
  const std::vector<std::string> all = absl::StrSplit(std::string(names), ' ');
  return std::find(all.begin(), all.end(), name) != all.end();
}

absl::Status Invalid(const std::string& place, std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", std::string(what)));
}

absl::Status Read(const Json& value, const std::string& place, std::string& text) {
  if (!value.is_string())
    return Invalid(place, absl::StrCat("expected a string, found ", value.type_name()));
  text = value.get<std::string>();
  const bool is_line = std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
  });
  return is_line ? absl::OkStatus() : Invalid(place, "expected a text of one line");
}

absl::Status Read(const Json& value, const std::string& place, double& number) {
  if (value.is_number()) {
    number = value.get<double>();
  } else if (!value.is_string() || !absl::SimpleAtod(value.get<std::string>(), &number)) {
    return Invalid(place, absl::StrCat("expected a number, found ", value.type_name()));
  }
  return std::isfinite(number) ? absl::OkStatus() : Invalid(place, "expected a finite number");
}

absl::Status Read(const Json& value, const std::string& place, bool& is_true) {
  is_true = value == true || value == "true";
  if (is_true || value == false || value == "false") return absl::OkStatus();
  return Invalid(place, absl::StrCat("expected true or false, found ", value.type_name()));
}

template <uint64_t min, uint64_t max>
struct Whole {
  uint64_t value = min;
};
using Dim = Whole<1, kDimMax>;
using Device = Whole<0, 1023>;  // as [l1] devices
using Count = Whole<0, 1'000'000'000>;

template <uint64_t min, uint64_t max>
absl::Status Read(const Json& value, const std::string& place, Whole<min, max>& whole) {
  double number = 0;
  HPS_RETURN_IF_ERROR(Read(value, place, number));
  if (number < min || number > max || number != std::floor(number))
    return Invalid(place, absl::StrCat("expected a whole number from ", min, " to ", max));
  whole.value = static_cast<uint64_t>(number);
  return absl::OkStatus();
}

// An object of the file. It knows which of its members have been read, and so are converted.
class Section {
 public:
  // Borrows `json`, an object. What becomes of its members is written to `config`.
  Section(const Json& json, std::string place, ConvertedConfig& config)
      : json_(json), place_(std::move(place)), config_(config) {}

  std::string Place(std::string_view name) const {
    return absl::StrCat(place_, place_.empty() ? "" : ".", std::string(name));
  }

  // The member, or null.
  const Json* Find(const std::string& name) {
    const auto found = json_.find(name);
    if (found == json_.end()) return nullptr;
    const Json& first = found->is_array() && !found->empty() ? found->front() : *found;
    const bool has_settings = first.is_object();  // which are grouped one by one
    if (read_.insert(name).second && !has_settings) config_.converted.push_back(Place(name));
    return &*found;
  }

  template <typename Value>
  absl::StatusOr<Value> Get(const std::string& name, Value otherwise) {
    const Json* const value = Find(name);
    if (value != nullptr) HPS_RETURN_IF_ERROR(Read(*value, Place(name), otherwise));
    return otherwise;
  }

  template <typename Value>
  absl::StatusOr<std::vector<Value>> List(const std::string& name) {
    std::vector<Value> list;
    const Json* const value = Find(name);
    if (value == nullptr) return list;
    if (!value->is_array())
      return Invalid(Place(name), absl::StrCat("expected a list, found ", value->type_name()));
    for (const Json& element : *value) {
      const std::string here = absl::StrCat(Place(name), "[", list.size(), "]");
      HPS_RETURN_IF_ERROR(Read(element, here, list.emplace_back()));
    }
    return list;
  }

  // Values beyond [0, 1] are clamped.
  absl::StatusOr<double> Share(const std::string& name, double otherwise) {
    HPS_ASSIGN_OR_RETURN(const double number, Get(name, otherwise));
    const double share = std::clamp(number, 0.0, 1.0);
    if (share != number) {
      Lose(name,
           absl::StrCat("the share ", PrintDouble(number), " was clamped to ", PrintDouble(share)));
    }
    return share;
  }

  // The value that one of HugeCTR's names stands for.
  absl::StatusOr<std::string_view> Choose(const std::string& name,
                                          std::span<const hugectr::Names> values) {
    HPS_ASSIGN_OR_RETURN(const std::string text, Get(name, std::string()));
    for (const auto& [names, value] : values)
      if (HasName(names, text)) return value;
    if (!text.empty()) {
      Lose(name, absl::StrCat("'", text, "' is unknown; HugeCTR takes it for '",
                              std::string(values.front().second), "', and so does hps"));
    }
    return values.front().second;
  }

  // Settings whose loss has the same text share a line.
  void Lose(const std::string& name, const std::string& text) {
    for (std::string& warning : config_.warnings) {
      if (!warning.ends_with(": " + text)) continue;
      warning.insert(warning.size() - text.size() - 2, ", " + Place(name));
      return;
    }
    config_.warnings.push_back(absl::StrCat(Place(name), ": ", text));
  }

  // The members that have not been read are lost or not needed; none is needed if the section is
  // not in use.
  void End(std::span<const hugectr::Loss> losses, bool is_used = true) {
    for (const auto& [name, value] : json_.items()) {
      if (read_.contains(name)) continue;
      const auto loss =
          std::find_if(losses.begin(), losses.end(),
                       [&name = name](const hugectr::Loss& one) { return name == one.name; });
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      const bool has_loss = loss != losses.end();
      const bool is_harmless = has_loss && (text == loss->harmless || text.empty() || value == 0);
      if (!is_used || is_harmless || (!has_loss && HasName(hugectr::kNotNeeded, name))) {
        config_.not_needed.push_back(Place(name));
      } else {
        Lose(name, has_loss ? loss->text : "no setting of HugeCTR since 4.3; ignored");
      }
    }
  }

 private:
  const Json& json_;
  const std::string place_;
  ConvertedConfig& config_;
  std::set<std::string> read_;
};

// The addresses of HugeCTR's lists.
std::vector<std::string> Addresses(const std::string& list) {
  return absl::StrSplit(list, absl::ByAnyChar(",; "), absl::SkipEmpty());
}

std::string QuotedList(const std::vector<std::string>& texts) {
  return absl::StrCat("[",
                      absl::StrJoin(texts, ", ",
                                    [](std::string* out, const auto& text) {
                                      absl::StrAppend(out, QuoteToml(text));
                                    }),
                      "]");
}

// Quotes a word of a shell command that is written into a comment, so on one line.
std::string ShellWord(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}, {"\n", "?"}}), "'");
}

// Formats the float32 that a table gets; the number itself if it has none, for the import to
// refuse.
std::string DefaultText(double value) {
  const auto narrow = static_cast<float>(value);
  return std::isfinite(narrow) ? FormatFloat(narrow) : PrintDouble(value);
}

struct Model {
  std::string name;
  std::vector<std::string> tables;
  std::vector<std::string> paths;  // of the tables
  std::vector<Dim> dims;           // may be fewer than tables
  std::vector<double> defaults;    // as above; the others are 0
  std::set<uint64_t> devices;
  bool has_cache = true;
  bool preloads = false;
  std::optional<double> l1_share;
  double threshold = 1;
};

class Converter {
 public:
  absl::Status Convert(const Json& root);
  ConvertedConfig Take(const std::string& config_file);

 private:
  absl::StatusOr<Section> Open(const Json& json, const std::string& place) {
    if (json.is_object()) return Section(json, place, config_);
    return Invalid(place, absl::StrCat("expected an object, found ", json.type_name()));
  }
  absl::Status ReadModel(const Json& json, const std::string& place);
  absl::Status ReadTables(Section& section, Model& model);
  absl::Status ReadCache(Section& section, Model& model);
  absl::Status ReadLevel2(const Json& json);
  absl::Status ReadRedis(Section& section);
  absl::Status ReadRedisTls(Section& section);
  absl::Status ReadEviction(Section& section);
  absl::Status ReadLevel3(const Json& json);
  absl::Status ReadUpdateSource(const Json& json);

  std::vector<std::string> Imports(const std::string& config_file) const;
  void AppendLevel1(std::string& toml);
  void AppendLookup(std::string& toml);
  void AppendModels(std::string& toml) const;

  std::vector<Model> models_;
  // Lines. HugeCTR has a hash map that it fills at the start, unless the file says otherwise.
  std::vector<std::string> level2_ = {"preload = 1.0"};
  std::vector<std::string> redis_;  // lines
  std::vector<std::string> brokers_;
  bool has_databases_ = true;  // that read an update source
  ConvertedConfig config_;
};

absl::Status Converter::ReadTables(Section& section, Model& model) {
  if (const Json* files = section.Find("sparse_files"); files != nullptr && files->is_object()) {
    return Invalid(section.Place("sparse_files"),
                   "can't assign the files of fused tables: list them");
  }
  HPS_ASSIGN_OR_RETURN(model.paths, section.List<std::string>("sparse_files"));
  HPS_ASSIGN_OR_RETURN(model.tables, section.List<std::string>("embedding_table_names"));
  const bool has_names = !model.tables.empty();
  HPS_ASSIGN_OR_RETURN(model.dims, section.List<Dim>("embedding_vecsize_per_table"));
  HPS_ASSIGN_OR_RETURN(model.defaults, section.List<double>("default_value_for_each_table"));
  for (size_t i = 0; model.tables.size() < model.paths.size() && !has_names; ++i)
    model.tables.push_back(absl::StrCat("sparse_embedding", i));  // HugeCTR's names
  const std::string place = section.Place("embedding_table_names");
  if (model.tables.size() != model.paths.size()) {
    return Invalid(place, absl::StrCat(model.paths.size(), " sparse_files, but ",
                                       model.tables.size(), " embedding_table_names"));
  }
  for (size_t i = 0; i < model.tables.size(); ++i) {
    const absl::Status valid = ValidateTableName(absl::StrCat(model.name, "/", model.tables[i]));
    if (!valid.ok()) return Invalid(absl::StrCat(place, "[", i, "]"), std::string(valid.message()));
  }
  const std::set<std::string> unique(model.tables.begin(), model.tables.end());
  if (unique.size() == model.tables.size()) return absl::OkStatus();
  return Invalid(place, "a table is named twice");
}

absl::Status Converter::ReadCache(Section& section, Model& model) {
  HPS_ASSIGN_OR_RETURN(const auto devices, section.List<Device>("deployed_device_list"));
  for (const Device& device : devices) model.devices.insert(device.value);
  HPS_ASSIGN_OR_RETURN(model.has_cache, section.Get("gpucache", true));
  if (section.Find("gpucacheper") != nullptr) {
    HPS_ASSIGN_OR_RETURN(model.l1_share, section.Share("gpucacheper", 0));
  }
  if (!model.has_cache) model.l1_share = 0;
  // Beyond 1, HugeCTR waits for every row, as hps does with 1.
  HPS_ASSIGN_OR_RETURN(const double threshold, section.Get("hit_rate_threshold", 1.0));
  model.threshold = std::clamp(threshold, 0.0, 1.0);
  if (section.Find("hit_rate_threshold") == nullptr) {
    section.Lose(
        "hit_rate_threshold",
        "not set: HugeCTR takes 0.9; hps takes 1.0, with which lookups wait for every row");
  }
  HPS_ASSIGN_OR_RETURN(const double refreshed,
                       section.Share("cache_refresh_percentage_per_iteration", 0));
  HPS_ASSIGN_OR_RETURN(const bool warms_up, section.Get("init_ec", true));
  model.preloads = model.has_cache && warms_up && refreshed > 0;
  return absl::OkStatus();
}

absl::Status Converter::ReadModel(const Json& json, const std::string& place) {
  HPS_ASSIGN_OR_RETURN(Section section, Open(json, place));
  Model model;
  HPS_ASSIGN_OR_RETURN(model.name, section.Get("model", std::string()));
  if (model.name.empty()) return Invalid(place, "'model', the name, is missing");
  const absl::Status valid = ValidateTableName(model.name + "/t");
  if (!valid.ok()) return Invalid(section.Place("model"), std::string(valid.message()));
  for (const Model& other : models_) {
    if (other.name == model.name) return Invalid(section.Place("model"), "a model is named twice");
  }
  HPS_RETURN_IF_ERROR(ReadTables(section, model));
  HPS_RETURN_IF_ERROR(ReadCache(section, model));
  section.End(hugectr::kModelLosses);
  models_.push_back(std::move(model));
  return absl::OkStatus();
}

// HugeCTR knows Redis Clusters only.
absl::Status Converter::ReadRedis(Section& section) {
  redis_ = {"cluster = true"};
  HPS_ASSIGN_OR_RETURN(const std::string list,
                       section.Get<std::string>("address", "127.0.0.1:7000"));
  std::vector<std::string> nodes;
  for (const std::string& address : Addresses(list)) {
    const bool has_port = address.rfind(':') != address.npos && !address.ends_with(']');
    nodes.push_back(has_port ? address : address + ":6379");
    const std::string host = nodes.back().substr(0, nodes.back().rfind(':'));
    const bool is_ipv6 = host.size() > 2 && host.starts_with('[') && host.ends_with(']');
    uint32_t port = 0;
    if (host.empty() || (!is_ipv6 && host.find_first_of(":[]") != host.npos) ||
        !absl::SimpleAtoi(nodes.back().substr(host.size() + 1), &port) || port == 0 ||
        port > UINT16_MAX) {
      return Invalid(section.Place("address"),
                     absl::StrCat("'", address, "' is not the address of a Redis server: expected ",
                                  "host[:port]"));
    }
  }
  if (nodes.empty()) return Invalid(section.Place("address"), "expected an address");
  redis_.push_back("nodes = " + QuotedList(nodes));
  HPS_ASSIGN_OR_RETURN(const auto user, section.Get("user_name", std::string()));
  HPS_ASSIGN_OR_RETURN(const auto password, section.Get("password", std::string()));
  if (!password.empty()) {
    if (!user.empty()) redis_.push_back("user = " + QuoteToml(user));
    redis_.emplace_back("password_file = \"redis_password\"");
    section.Lose("password",
                 "write it into the file redis_password beside the configuration (chmod 600)");
  }
  if (section.Find("num_node_connections") != nullptr) {
    HPS_ASSIGN_OR_RETURN(const auto count, section.Get("num_node_connections", Count()));
    redis_.push_back(
        absl::StrCat("connections_per_node = ", std::clamp<uint64_t>(count.value, 1, 1024)));
  }
  return ReadRedisTls(section);
}

absl::Status Converter::ReadRedisTls(Section& section) {
  HPS_ASSIGN_OR_RETURN(const bool is_enabled, section.Get("enable_tls", false));
  if (!is_enabled) return absl::OkStatus();
  redis_.emplace_back("tls = true");
  struct Name {
    const char* original;
    const char* ours;
    std::string value;  // HugeCTR's default
  };
  Name names[] = {{"tls_ca_certificate", "tls_ca", "cacertbundle.crt"},
                  {"tls_server_name_identification", "tls_server_name", "redis.localhost"},
                  {"tls_client_certificate", "tls_certificate", "client_cert.pem"},
                  {"tls_client_key", "tls_key", "client_key.pem"}};
  for (Name& name : names) {
    HPS_ASSIGN_OR_RETURN(name.value, section.Get(name.original, name.value));
  }
  if (names[2].value.empty() || names[3].value.empty()) names[2].value = names[3].value = "";
  for (const Name& name : names) {
    if (!name.value.empty())
      redis_.push_back(absl::StrCat(name.ours, " = ", QuoteToml(name.value)));
  }
  return absl::OkStatus();
}

absl::Status Converter::ReadEviction(Section& section) {
  if (section.Find("overflow_policy") != nullptr) {
    HPS_ASSIGN_OR_RETURN(const auto eviction,
                         section.Choose("overflow_policy", hugectr::kEvictions));
    level2_.push_back(absl::StrCat("eviction = \"", std::string(eviction), "\""));
  }
  if (section.Find("overflow_resolution_target") != nullptr) {
    HPS_ASSIGN_OR_RETURN(const double target, section.Share("overflow_resolution_target", 0));
    const double evict_to = std::max(target, 0.01);
    if (evict_to > 0.98) level2_.emplace_back("evict_from = 1.0");
    level2_.push_back(absl::StrCat("evict_to = ", PrintDouble(evict_to)));
  }
  return absl::OkStatus();
}

absl::Status Converter::ReadLevel2(const Json& json) {
  HPS_ASSIGN_OR_RETURN(Section section, Open(json, "volatile_db"));
  HPS_ASSIGN_OR_RETURN(const auto type, section.Choose("type", hugectr::kLevel2Types));
  const bool is_used = type != "none";
  level2_.clear();
  has_databases_ = is_used;
  if (type == "none") level2_ = {"kind = \"none\""};
  if (type == "redis") level2_ = {"kind = \"redis\""};
  if (type == "redis") HPS_RETURN_IF_ERROR(ReadRedis(section));
  if (type == "memory" || type == "shared") HPS_RETURN_IF_ERROR(ReadEviction(section));
  if (type == "shared") section.Lose("type", "each process has a level 2 of its own");
  if (is_used) {
    HPS_ASSIGN_OR_RETURN(const double rate, section.Share("initial_cache_rate", 1));
    level2_.push_back(absl::StrCat("preload = ", PrintDouble(rate)));
  }
  section.End(hugectr::kLevel2Losses, is_used);
  return absl::OkStatus();
}

absl::Status Converter::ReadLevel3(const Json& json) {
  HPS_ASSIGN_OR_RETURN(Section section, Open(json, "persistent_db"));
  HPS_ASSIGN_OR_RETURN(const auto type, section.Choose("type", hugectr::kLevel3Types));
  const bool is_used = type != "none";
  has_databases_ |= is_used;
  section.End(hugectr::kLevel3Losses, is_used);
  return absl::OkStatus();
}

absl::Status Converter::ReadUpdateSource(const Json& json) {
  if (json.is_null()) return absl::OkStatus();
  HPS_ASSIGN_OR_RETURN(Section section, Open(json, "update_source"));
  HPS_ASSIGN_OR_RETURN(const auto type, section.Choose("type", hugectr::kUpdateTypes));
  const bool is_used = type != "none";
  if (is_used) {
    HPS_ASSIGN_OR_RETURN(const std::string list,
                         section.Get<std::string>("brokers", "127.0.0.1:9092"));
    brokers_ = Addresses(list);
    if (brokers_.empty()) return Invalid(section.Place("brokers"), "expected an address");
    if (!has_databases_) {
      section.Lose("type",
                   "HugeCTR reads no changes where both databases are disabled; hps reads them");
    }
  }
  section.End({}, is_used);
  return absl::OkStatus();
}

absl::Status Converter::Convert(const Json& root) {
  if (!root.is_object()) return absl::InvalidArgumentError("expected a JSON object");
  Section section(root, "", config_);
  const Json* const models = section.Find("models");
  if (models == nullptr || !models->is_array() || models->empty())
    return Invalid("models", "expected a list of models");
  for (size_t i = 0; i < models->size(); ++i)
    HPS_RETURN_IF_ERROR(ReadModel((*models)[i], absl::StrCat("models[", i, "]")));
  if (const Json* value = section.Find("volatile_db")) HPS_RETURN_IF_ERROR(ReadLevel2(*value));
  if (const Json* value = section.Find("persistent_db")) HPS_RETURN_IF_ERROR(ReadLevel3(*value));
  if (const Json* value = section.Find("update_source"))
    HPS_RETURN_IF_ERROR(ReadUpdateSource(*value));
  HPS_ASSIGN_OR_RETURN(const bool is_64_bit, section.Get("supportlonglong", true));
  if (!is_64_bit) section.Lose("supportlonglong", "keys are 64-bit: requests send INT64");
  section.End({});
  return absl::OkStatus();
}

// One value for all tables, or one for each.
std::string OneOrEach(const std::vector<std::string>& values) {
  const bool are_equal = std::all_of(values.begin(), values.end(),
                                     [&](const auto& value) { return value == values.front(); });
  return are_equal ? values.front() : absl::StrJoin(values, ",");
}

std::vector<std::string> Converter::Imports(const std::string& config_file) const {
  std::vector<std::string> imports;
  for (const Model& model : models_) {
    if (model.tables.empty()) continue;
    std::string& line = imports.emplace_back("hps import ");
    absl::StrAppend(&line,
                    config_file.empty() ? "--store store" : "--config " + ShellWord(config_file),
                    " --model ", model.name);
    std::vector<std::string> dims;
    std::vector<std::string> defaults;
    for (size_t i = 0; i < model.tables.size(); ++i) {
      absl::StrAppend(&line, " --table-from ", ShellWord(model.tables[i] + "=" + model.paths[i]));
      if (i < model.dims.size()) dims.push_back(absl::StrCat(model.dims[i].value));
      defaults.push_back(i < model.defaults.size() ? DefaultText(model.defaults[i]) : "0");
    }
    if (dims.size() == model.tables.size()) absl::StrAppend(&line, " --dim ", OneOrEach(dims));
    absl::StrAppend(&line, " --default ", OneOrEach(defaults));
  }
  return imports;
}

void Converter::AppendLevel1(std::string& toml) {
  std::set<std::set<uint64_t>> lists;  // of the models with a cache
  std::set<uint64_t> devices;
  bool preloads = false;
  for (const Model& model : models_) {
    if (!model.has_cache) continue;
    lists.insert(model.devices);
    devices.insert(model.devices.begin(), model.devices.end());
    preloads |= model.preloads;
  }
  const std::string list = absl::StrCat("[", absl::StrJoin(devices, ", "), "]");
  const bool is_auto = devices.empty() && !lists.empty();
  absl::StrAppend(&toml, "\n[l1]\ndevices = ", is_auto ? "\"auto\"" : list,
                  devices.empty() ? "\n" : "  # [] on a machine without GPUs\n");
  if (lists.size() > 1) {
    config_.warnings.push_back(absl::StrCat("deployed_device_list: models differ; each GPU of ",
                                            list, " caches the rows of all models"));
  }
  if (preloads) toml += "preload = 1.0\n";
}

void Converter::AppendLookup(std::string& toml) {
  std::set<double> thresholds;
  for (const Model& model : models_) thresholds.insert(model.threshold);
  if (thresholds.size() > 1) {
    config_.warnings.emplace_back(
        "hit_rate_threshold: models differ; the largest is taken for all");
  }
  absl::StrAppend(&toml, "\n[lookup]\nhit_rate_threshold = ", PrintDouble(*thresholds.rbegin()),
                  "\n");
}

void Converter::AppendModels(std::string& toml) const {
  for (const Model& model : models_) {
    absl::StrAppend(&toml, "\n[[model]]\nname = ", QuoteToml(model.name),
                    "\ntables = ", QuotedList(model.tables), "\n");
    for (const std::string& table : model.tables) {
      if (!model.l1_share.has_value()) break;
      absl::StrAppend(&toml, "[[model.table]]\nname = ", QuoteToml(table),
                      "\nl1_share = ", PrintDouble(*model.l1_share), "\n");
    }
  }
}

ConvertedConfig Converter::Take(const std::string& config_file) {
  config_.imports = Imports(config_file);
  std::string& toml = config_.toml;
  toml =
      "# Converted from HugeCTR's ps.json.\n#\n"
      "# The tables are imported by these commands, once and for each new version:\n#\n";
  for (const std::string& import : config_.imports) absl::StrAppend(&toml, "#     ", import, "\n");
  toml += "\n[store]\npath = \"store\"\n";
  absl::StrAppend(&toml, "\n[l2]\n", absl::StrJoin(level2_, "\n"), "\n");
  if (!redis_.empty()) absl::StrAppend(&toml, "\n[l2.redis]\n", absl::StrJoin(redis_, "\n"), "\n");
  AppendLevel1(toml);
  AppendLookup(toml);
  if (!brokers_.empty())
    absl::StrAppend(&toml, "\n[update]\nbrokers = ", QuotedList(brokers_), "\n");
  AppendModels(toml);
  return std::move(config_);
}

}  // namespace

absl::StatusOr<ConvertedConfig> ConvertHugeCtrConfig(std::string_view json,
                                                     const std::string& config_file) {
  if (json.size() > kHugeCtrConfigBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the file has ", json.size(), " bytes; a ps.json has at most ", kHugeCtrConfigBytesMax));
  }
  Json root;
  try {
    root = Json::parse(json, nullptr, /*allow_exceptions=*/true, /*ignore_comments=*/true);
  } catch (const Json::exception& error) {
    // The parser's message without the text that it read last, because it may be a password.
    const std::string_view what = error.what();
    return absl::InvalidArgumentError(
        absl::StrCat("not JSON: ", std::string(what.substr(0, what.find("; last read")))));
  }
  Converter converter;
  HPS_RETURN_IF_ERROR(converter.Convert(root));
  return converter.Take(config_file);
}

}  // namespace hps
