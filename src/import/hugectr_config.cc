#include "import/hugectr_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/json_writer.h"
#include "base/macros.h"
#include "base/text.h"
#include "hps/table_spec.h"

namespace hps {
namespace {

using Json = nlohmann::json;

// The warning for a setting that is not converted.
struct Note {
  const char* name;
  const char* text;
};

constexpr char kNetworkReason[] =
    "a network is imported as ONNX with its tables, and says it itself (docs/ctr_models.md)";

constexpr Note kModelNotes[] = {
    {"dense_file", kNetworkReason},
    {"network_file", kNetworkReason},
    {"maxnum_catfeature_query_per_table_per_sample", "not needed: no buffer depends on it"},
    {"maxnum_des_feature_per_sample", kNetworkReason},
    {"max_batch_size", "not needed: requests are limited by [server] and in bytes"},
    {"num_of_worker_buffer_in_pool", "not needed: [server] lookups follows the machine's cores"},
    {"num_of_refresher_buffer_in_pool", "not needed"},
    {"embedding_cache_type", "level 1 has one type; it keeps the hot rows"},
    {"use_static_table", "level 1 has one type; it keeps the hot rows"},
    {"use_hctr_cache_implementation", "level 1 has one implementation"},
    {"use_context_stream", "not needed: callers pass their stream"},
    {"refresh_delay", "this version has no refresh of level 1"},
    {"refresh_interval", "this version has no refresh of level 1"},
    {"thread_pool_size", "not needed: [threads] follows the machine's cores"},
    {"fuse_embedding_table", "not needed: one launch probes all tables"},
    {"enable_pagelock", "not needed"},
    {"fp8_quant", "rows are kept in their own type"},
    {"mixed_precision", kNetworkReason},
    {"label_dim", kNetworkReason},
    {"slot_num", kNetworkReason},
};

constexpr Note kLevel2Notes[] = {
    {"num_partitions",
     "not needed: partitions follow the budget; `hps import --from redis://HOST:PORT` takes it as "
     "--partitions"},
    {"max_batch_size", "not needed"},
    {"allocation_rate", "set [l2] bytes_max, the budget of all tables"},
    {"overflow_margin",
     "it counts rows per partition: set [l2] bytes_max, the budget of all tables"},
    {"cache_missed_embeddings", "not needed: missed rows are always promoted"},
    {"refresh_time_after_fetch", "not needed: eviction follows the last access"},
    {"initialize_after_startup", "not needed: the store keeps the rows"},
    {"update_filters", "this version has no update stream"},
    {"shared_memory_size", "level 2 belongs to one process"},
    {"shared_memory_name", "level 2 belongs to one process"},
    {"shared_memory_auto_remove", "level 2 belongs to one process"},
};

constexpr Note kLevel3Notes[] = {
    {"path", "hps has its own store: import the tables with the commands in the file"},
    {"num_threads", "not needed: [threads] follows the machine's cores"},
    {"read_only", "hps serve takes imports; commands that only read open the store read-only"},
    {"max_batch_size", "not needed"},
    {"initialize_after_startup", "not needed: the store keeps the rows"},
    {"update_filters", "set [update] tables, patterns of MODEL/TABLE"},
};

constexpr Note kUpdateNotes[] = {
    {"metadata_refresh_interval_ms", "not needed: a new topic is found within 5 s"},
    {"receive_buffer_size", "not needed: messages have up to 16 MiB"},
    {"poll_timeout_ms", "not needed"},
    {"max_batch_size", "not needed: changes are merged into writes of 4 MiB"},
    {"failure_backoff_ms", "not needed"},
    {"max_commit_interval", "not needed: positions are kept in the store"},
};

// Formats a TOML basic string.
std::string Quoted(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7f) {
      absl::StrAppend(&quoted, "\\u00", std::string{kHex[byte >> 4], kHex[byte & 15]});
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

// The addresses of HugeCTR's lists, in quotes.
std::vector<std::string> QuotedParts(const std::string& list) {
  std::vector<std::string> parts;
  for (const absl::string_view part : absl::StrSplit(list, absl::ByAnyChar(",; "))) {
    if (!part.empty()) parts.push_back(Quoted({part.data(), part.size()}));
  }
  return parts;
}

// Quotes a word of a shell command that is written into a comment, so on one line.
std::string ShellWord(std::string_view text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return word + "'";
}

// Formats the float32 that a table gets; the number itself if it has none, for the import to
// refuse.
std::string DefaultText(double value) {
  const auto narrow = static_cast<float>(value);
  return std::isfinite(narrow) ? FormatFloat(narrow) : PrintDouble(value);
}

struct TableFiles {
  std::string name;
  std::string path;
  std::optional<uint64_t> dim;
  std::optional<double> default_value;
};

struct Model {
  std::string name;
  std::vector<TableFiles> tables;
  std::vector<uint64_t> devices;
  bool has_cache = true;
  bool preloads = false;
  std::optional<double> cache_share;
  std::optional<double> threshold;
};

class Converter {
 public:
  absl::Status Convert(const Json& root);
  ConvertedConfig Take();

 private:
  void Warn(const std::string& place, std::string_view what) {
    warnings_.push_back(absl::StrCat(place, ": ", std::string(what)));
  }
  static absl::Status Invalid(const std::string& place, std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": ", std::string(what)));
  }
  // Returns a member of `object`, or null.
  static const Json* Find(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  }

  static absl::StatusOr<std::string> Text(const Json& value, const std::string& place);
  static absl::StatusOr<double> Number(const Json& value, const std::string& place);
  static absl::StatusOr<uint64_t> Count(const Json& value, const std::string& place);
  static absl::StatusOr<bool> Boolean(const Json& value, const std::string& place);
  template <typename T, typename Read>
  static absl::StatusOr<std::vector<T>> List(const Json& object, const char* name,
                                             const std::string& place, Read read);
  // Reads a share in [0, 1]. Clamps other values, with a warning.
  absl::StatusOr<double> Share(const Json& value, const std::string& place);

  // Warns about every member that is not in `known`.
  void WarnAboutUnknown(const Json& object, const std::string& place,
                        std::initializer_list<const char*> known, std::span<const Note> notes);
  absl::Status ReadModel(const Json& json, const std::string& place);
  absl::Status ReadTables(const Json& json, const std::string& place, Model& model);
  absl::Status ReadCache(const Json& json, const std::string& place, Model& model);
  absl::Status ReadLevel2(const Json& json);
  absl::Status ReadLevel2Type(const Json& json);
  absl::Status ReadRedis(const Json& json);
  absl::Status ReadRedisTls(const Json& json);
  absl::Status ReadLevel3(const Json& json);
  absl::Status ReadUpdateSource(const Json& json);

  void AppendImports(std::string& toml) const;
  void AppendLevel1(std::string& toml);
  void AppendLookup(std::string& toml);
  void AppendModels(std::string& toml) const;

  std::vector<Model> models_;
  std::vector<std::string> level2_;   // lines
  std::vector<std::string> redis_;    // lines
  std::vector<std::string> brokers_;  // in quotes
  std::vector<std::string> warnings_;
};

absl::StatusOr<std::string> Converter::Text(const Json& value, const std::string& place) {
  if (value.is_string()) return value.get<std::string>();
  return Invalid(place, absl::StrCat("expected a string, found ", value.type_name()));
}

absl::StatusOr<double> Converter::Number(const Json& value, const std::string& place) {
  double number = 0;
  if (value.is_number()) {
    number = value.get<double>();
  } else if (!value.is_string() || !absl::SimpleAtod(value.get<std::string>(), &number)) {
    return Invalid(place, absl::StrCat("expected a number, found ", value.type_name()));
  }
  if (!std::isfinite(number)) return Invalid(place, "expected a finite number");
  return number;
}

absl::StatusOr<uint64_t> Converter::Count(const Json& value, const std::string& place) {
  HPS_ASSIGN_OR_RETURN(const double number, Number(value, place));
  if (number < 0 || number > 1e9 || number != std::floor(number))
    return Invalid(place, "expected a whole number from 0 to 10^9");
  return static_cast<uint64_t>(number);
}

absl::StatusOr<bool> Converter::Boolean(const Json& value, const std::string& place) {
  if (value.is_boolean()) return value.get<bool>();
  if (value == "true") return true;
  if (value == "false") return false;
  return Invalid(place, absl::StrCat("expected true or false, found ", value.type_name()));
}

absl::StatusOr<double> Converter::Share(const Json& value, const std::string& place) {
  HPS_ASSIGN_OR_RETURN(const double number, Number(value, place));
  if (number >= 0 && number <= 1) return number;
  const double cut = std::clamp(number, 0.0, 1.0);
  Warn(place,
       absl::StrCat("the share ", PrintDouble(number), " was clamped to ", PrintDouble(cut)));
  return cut;
}

template <typename T, typename Read>
absl::StatusOr<std::vector<T>> Converter::List(const Json& object, const char* name,
                                               const std::string& place, Read read) {
  std::vector<T> list;
  const Json* const value = Find(object, name);
  if (value == nullptr) return list;
  const std::string here = absl::StrCat(place, ".", name);
  if (!value->is_array())
    return Invalid(here, absl::StrCat("expected a list, found ", value->type_name()));
  for (size_t i = 0; i < value->size(); ++i) {
    HPS_ASSIGN_OR_RETURN(T element, read((*value)[i], absl::StrCat(here, "[", i, "]")));
    list.push_back(std::move(element));
  }
  return list;
}

void Converter::WarnAboutUnknown(const Json& object, const std::string& place,
                                 std::initializer_list<const char*> known,
                                 std::span<const Note> notes) {
  for (const auto& [name, value] : object.items()) {
    const auto is_known = [&name = name](const char* other) { return name == other; };
    if (std::any_of(known.begin(), known.end(), is_known)) continue;
    const auto note = std::find_if(notes.begin(), notes.end(),
                                   [&name = name](const Note& one) { return name == one.name; });
    Warn(absl::StrCat(place, place.empty() ? "" : ".", name),
         note != notes.end() ? note->text : "not known to HugeCTR; ignored");
  }
}

absl::Status Converter::ReadTables(const Json& json, const std::string& place, Model& model) {
  if (const Json* files = Find(json, "sparse_files"); files != nullptr && files->is_object())
    return Invalid(place + ".sparse_files", "can't assign the files of fused tables: list them");
  HPS_ASSIGN_OR_RETURN(const auto files, List<std::string>(json, "sparse_files", place, Text));
  HPS_ASSIGN_OR_RETURN(auto names, List<std::string>(json, "embedding_table_names", place, Text));
  HPS_ASSIGN_OR_RETURN(const auto dims,
                       List<uint64_t>(json, "embedding_vecsize_per_table", place, Count));
  HPS_ASSIGN_OR_RETURN(const auto defaults,
                       List<double>(json, "default_value_for_each_table", place, Number));
  if (names.empty()) {
    for (size_t i = 0; i < files.size(); ++i) names.push_back(absl::StrCat("sparse_embedding", i));
  }
  if (names.size() != files.size()) {
    return Invalid(place, absl::StrCat(files.size(), " sparse_files, but ", names.size(),
                                       " embedding_table_names"));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const absl::Status valid = ValidateTableName(absl::StrCat(model.name, "/", names[i]));
    if (!valid.ok())
      return Invalid(absl::StrCat(place, ".embedding_table_names[", i, "]"),
                     std::string(valid.message()));
    TableFiles table{.name = names[i], .path = files[i], .dim = {}, .default_value = {}};
    if (i < dims.size()) table.dim = dims[i];
    if (i < defaults.size()) table.default_value = defaults[i];
    model.tables.push_back(std::move(table));
  }
  std::set<std::string> unique(names.begin(), names.end());
  if (unique.size() == names.size()) return absl::OkStatus();
  return Invalid(place + ".embedding_table_names", "a table is named twice");
}

absl::Status Converter::ReadCache(const Json& json, const std::string& place, Model& model) {
  HPS_ASSIGN_OR_RETURN(model.devices, List<uint64_t>(json, "deployed_device_list", place, Count));
  if (const Json* value = Find(json, "gpucache")) {
    HPS_ASSIGN_OR_RETURN(model.has_cache, Boolean(*value, place + ".gpucache"));
  }
  if (const Json* value = Find(json, "gpucacheper")) {
    HPS_ASSIGN_OR_RETURN(model.cache_share, Share(*value, place + ".gpucacheper"));
  }
  if (const Json* value = Find(json, "hit_rate_threshold")) {
    HPS_ASSIGN_OR_RETURN(model.threshold, Share(*value, place + ".hit_rate_threshold"));
  }
  double refreshed = 0;
  if (const Json* value = Find(json, "cache_refresh_percentage_per_iteration")) {
    HPS_ASSIGN_OR_RETURN(refreshed,
                         Share(*value, place + ".cache_refresh_percentage_per_iteration"));
  }
  bool warms_up = true;
  if (const Json* value = Find(json, "init_ec")) {
    HPS_ASSIGN_OR_RETURN(warms_up, Boolean(*value, place + ".init_ec"));
  }
  model.preloads = model.has_cache && warms_up && refreshed > 0;
  return absl::OkStatus();
}

absl::Status Converter::ReadModel(const Json& json, const std::string& place) {
  if (!json.is_object())
    return Invalid(place, absl::StrCat("expected an object, found ", json.type_name()));
  Model model;
  const Json* const name = Find(json, "model");
  if (name == nullptr) return Invalid(place, "'model', the name, is missing");
  HPS_ASSIGN_OR_RETURN(model.name, Text(*name, place + ".model"));
  const absl::Status valid = ValidateTableName(model.name + "/t");
  if (!valid.ok()) return Invalid(place + ".model", std::string(valid.message()));
  for (const Model& other : models_) {
    if (other.name == model.name) return Invalid(place + ".model", "a model is named twice");
  }
  HPS_RETURN_IF_ERROR(ReadTables(json, place, model));
  HPS_RETURN_IF_ERROR(ReadCache(json, place, model));
  WarnAboutUnknown(
      json, place,
      {"model", "sparse_files", "embedding_table_names", "embedding_vecsize_per_table",
       "default_value_for_each_table", "deployed_device_list", "gpucache", "gpucacheper",
       "hit_rate_threshold", "cache_refresh_percentage_per_iteration", "init_ec"},
      kModelNotes);
  models_.push_back(std::move(model));
  return absl::OkStatus();
}

absl::Status Converter::ReadLevel2Type(const Json& json) {
  std::string type = "disabled";  // HugeCTR's default
  if (const Json* value = Find(json, "type")) {
    HPS_ASSIGN_OR_RETURN(type, Text(*value, "volatile_db.type"));
  }
  const bool is_redis = type.starts_with("redis");
  const bool is_shared = type.starts_with("multi_process");
  if (type == "disabled") {
    level2_.push_back("kind = \"none\"");
  } else if (!is_redis && !is_shared && type.find("hash_map") == type.npos) {
    Warn("volatile_db.type", absl::StrCat("'", type, "' is not known; level 2 is in memory"));
  }
  if (is_redis) return ReadRedis(json);
  if (is_shared) Warn("volatile_db.type", "level 2 belongs to one process");
  return absl::OkStatus();
}

// HugeCTR knows Redis Clusters only.
absl::Status Converter::ReadRedis(const Json& json) {
  level2_.push_back("kind = \"redis\"");
  redis_.push_back("cluster = true");
  std::string address = "127.0.0.1:7000";  // HugeCTR's default
  if (const Json* value = Find(json, "address")) {
    HPS_ASSIGN_OR_RETURN(address, Text(*value, "volatile_db.address"));
  }
  redis_.push_back(absl::StrCat("nodes = [", absl::StrJoin(QuotedParts(address), ", "), "]"));
  std::string user;
  std::string password;
  if (const Json* value = Find(json, "user_name")) {
    HPS_ASSIGN_OR_RETURN(user, Text(*value, "volatile_db.user_name"));
  }
  if (const Json* value = Find(json, "password")) {
    HPS_ASSIGN_OR_RETURN(password, Text(*value, "volatile_db.password"));
  }
  if (!password.empty()) {
    if (!user.empty()) redis_.push_back(absl::StrCat("user = ", Quoted(user)));
    redis_.emplace_back("password_file = \"redis_password\"");
    Warn("volatile_db.password", "write it into the file redis_password beside the configuration");
  }
  if (const Json* value = Find(json, "num_node_connections")) {
    HPS_ASSIGN_OR_RETURN(const uint64_t count, Count(*value, "volatile_db.num_node_connections"));
    redis_.push_back(absl::StrCat("connections_per_node = ", std::clamp<uint64_t>(count, 1, 1024)));
  }
  return ReadRedisTls(json);
}

absl::Status Converter::ReadRedisTls(const Json& json) {
  struct Name {
    const char* original;
    const char* ours;
    const char* value;  // HugeCTR's default
  };
  bool is_enabled = false;
  if (const Json* value = Find(json, "enable_tls")) {
    HPS_ASSIGN_OR_RETURN(is_enabled, Boolean(*value, "volatile_db.enable_tls"));
  }
  if (!is_enabled) return absl::OkStatus();
  redis_.push_back("tls = true");
  for (const Name& name :
       {Name{"tls_ca_certificate", "tls_ca", "cacertbundle.crt"},
        Name{"tls_client_certificate", "tls_certificate", "client_cert.pem"},
        Name{"tls_client_key", "tls_key", "client_key.pem"},
        Name{"tls_server_name_identification", "tls_server_name", "redis.localhost"}}) {
    std::string text = name.value;
    if (const Json* value = Find(json, name.original)) {
      HPS_ASSIGN_OR_RETURN(text, Text(*value, absl::StrCat("volatile_db.", name.original)));
    }
    redis_.push_back(absl::StrCat(name.ours, " = ", Quoted(text)));
  }
  return absl::OkStatus();
}

absl::Status Converter::ReadLevel2(const Json& json) {
  if (!json.is_object()) return Invalid("volatile_db", "expected an object");
  HPS_RETURN_IF_ERROR(ReadLevel2Type(json));
  if (const Json* value = Find(json, "overflow_policy")) {
    HPS_ASSIGN_OR_RETURN(const std::string policy, Text(*value, "volatile_db.overflow_policy"));
    const std::string eviction = policy.starts_with("evict_") ? policy.substr(6) : policy;
    if (eviction == "oldest" || eviction == "least_used" || eviction == "random") {
      level2_.push_back(absl::StrCat("eviction = ", Quoted(eviction)));
    } else {
      Warn("volatile_db.overflow_policy", "not known; the oldest rows are evicted");
    }
  }
  if (const Json* value = Find(json, "overflow_resolution_target")) {
    HPS_ASSIGN_OR_RETURN(const double target,
                         Share(*value, "volatile_db.overflow_resolution_target"));
    const double evict_to = std::max(target, 0.01);
    if (evict_to > 0.98) level2_.push_back("evict_from = 1.0");
    level2_.push_back(absl::StrCat("evict_to = ", PrintDouble(evict_to)));
  }
  if (const Json* value = Find(json, "initial_cache_rate")) {
    HPS_ASSIGN_OR_RETURN(const double rate, Share(*value, "volatile_db.initial_cache_rate"));
    level2_.push_back(absl::StrCat("preload = ", PrintDouble(rate)));
  }
  WarnAboutUnknown(
      json, "volatile_db",
      {"type", "overflow_policy", "overflow_resolution_target", "initial_cache_rate", "address",
       "user_name", "password", "num_node_connections", "enable_tls", "tls_ca_certificate",
       "tls_client_certificate", "tls_client_key", "tls_server_name_identification"},
      kLevel2Notes);
  return absl::OkStatus();
}

absl::Status Converter::ReadLevel3(const Json& json) {
  if (!json.is_object()) return Invalid("persistent_db", "expected an object");
  WarnAboutUnknown(json, "persistent_db", {"type"}, kLevel3Notes);
  return absl::OkStatus();
}

absl::Status Converter::ReadUpdateSource(const Json& json) {
  if (json.is_null()) return absl::OkStatus();
  if (!json.is_object()) return Invalid("update_source", "expected an object");
  std::string brokers = "127.0.0.1:9092";  // HugeCTR's default
  if (const Json* value = Find(json, "brokers")) {
    HPS_ASSIGN_OR_RETURN(brokers, Text(*value, "update_source.brokers"));
  }
  brokers_ = QuotedParts(brokers);
  WarnAboutUnknown(json, "update_source", {"type", "brokers"}, kUpdateNotes);
  return absl::OkStatus();
}

absl::Status Converter::Convert(const Json& root) {
  if (!root.is_object()) return absl::InvalidArgumentError("expected a JSON object");
  const Json* const models = Find(root, "models");
  if (models == nullptr || !models->is_array() || models->empty())
    return Invalid("models", "expected a list of models");
  for (size_t i = 0; i < models->size(); ++i)
    HPS_RETURN_IF_ERROR(ReadModel((*models)[i], absl::StrCat("models[", i, "]")));
  if (const Json* value = Find(root, "volatile_db")) HPS_RETURN_IF_ERROR(ReadLevel2(*value));
  if (const Json* value = Find(root, "persistent_db")) HPS_RETURN_IF_ERROR(ReadLevel3(*value));
  if (const Json* value = Find(root, "supportlonglong")) {
    HPS_ASSIGN_OR_RETURN(const bool is_64_bit, Boolean(*value, "supportlonglong"));
    if (!is_64_bit) Warn("supportlonglong", "keys are 64-bit: requests send INT64");
  }
  if (const Json* value = Find(root, "update_source"))
    HPS_RETURN_IF_ERROR(ReadUpdateSource(*value));
  WarnAboutUnknown(root, "",
                   {"models", "volatile_db", "persistent_db", "supportlonglong", "update_source"},
                   kModelNotes);
  return absl::OkStatus();
}

void Converter::AppendImports(std::string& toml) const {
  toml += "# The tables are imported by these commands, once and for each new version:\n#\n";
  for (const Model& model : models_) {
    for (const TableFiles& table : model.tables) {
      absl::StrAppend(&toml, "#     hps import --store store --table ", model.name, "/", table.name,
                      " --from ", ShellWord(table.path));
      if (table.dim.has_value()) absl::StrAppend(&toml, " --dim ", *table.dim);
      if (table.default_value.has_value())
        absl::StrAppend(&toml, " --default ", DefaultText(*table.default_value));
      toml += "\n";
    }
  }
}

void Converter::AppendLevel1(std::string& toml) {
  std::set<uint64_t> devices;
  bool has_cache = false;
  bool preloads = false;
  for (const Model& model : models_) {
    devices.insert(model.devices.begin(), model.devices.end());
    has_cache |= model.has_cache;
    preloads |= model.preloads;
  }
  toml += "\n[l1]\n";
  if (!has_cache) {
    toml += "devices = []\n";
    return;
  }
  toml += "devices = \"auto\"  # all GPUs that are present";
  if (!devices.empty()) {
    const std::string list = absl::StrJoin(devices, ", ");
    absl::StrAppend(&toml, "; to restrict: [", list, "]");
    Warn("deployed_device_list",
         absl::StrCat("level 1 uses all GPUs; set [l1] devices = [", list, "] to restrict it"));
  }
  toml += "\n";
  if (preloads) toml += "preload = 1.0\n";
}

void Converter::AppendLookup(std::string& toml) {
  std::optional<double> most;
  bool differ = false;
  for (const Model& model : models_) {
    if (!model.threshold.has_value()) continue;
    differ |= most.has_value() && *most != *model.threshold;
    most = std::max(most.value_or(0.0), *model.threshold);
  }
  if (!most.has_value()) return;
  if (differ) Warn("hit_rate_threshold", "models differ; the largest is taken for all");
  absl::StrAppend(&toml, "\n[lookup]\nhit_rate_threshold = ", PrintDouble(*most), "\n");
}

void Converter::AppendModels(std::string& toml) const {
  for (const Model& model : models_) {
    std::vector<std::string> names;
    for (const TableFiles& table : model.tables) names.push_back(Quoted(table.name));
    absl::StrAppend(&toml, "\n[[model]]\nname = ", Quoted(model.name), "\ntables = [",
                    absl::StrJoin(names, ", "), "]\n");
    const std::optional<double> share = model.has_cache ? model.cache_share : 0.0;
    if (!share.has_value()) continue;
    for (const std::string& name : names) {
      absl::StrAppend(&toml, "[[model.table]]\nname = ", name, "\nl1_share = ", PrintDouble(*share),
                      "\n");
    }
  }
}

ConvertedConfig Converter::Take() {
  std::string toml = "# Converted from HugeCTR's ps.json.\n#\n";
  AppendImports(toml);
  toml += "\n[store]\npath = \"store\"\n";
  if (!level2_.empty()) absl::StrAppend(&toml, "\n[l2]\n", absl::StrJoin(level2_, "\n"), "\n");
  if (!redis_.empty()) absl::StrAppend(&toml, "\n[l2.redis]\n", absl::StrJoin(redis_, "\n"), "\n");
  AppendLevel1(toml);
  AppendLookup(toml);
  if (!brokers_.empty())
    absl::StrAppend(&toml, "\n[update]\nbrokers = [", absl::StrJoin(brokers_, ", "), "]\n");
  AppendModels(toml);
  return {.toml = std::move(toml), .warnings = std::move(warnings_)};
}

}  // namespace

absl::StatusOr<ConvertedConfig> ConvertHugeCtrConfig(std::string_view json) {
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
  return converter.Take();
}

}  // namespace hps
