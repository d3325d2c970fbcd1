#include "node/config_check.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "node/config_settings.h"
#include "node/config_values.h"
#include "tier/redis_tier.h"
#include "types/names.h"
#include "types/units.h"
#include "update/kafka_settings.h"

namespace hps {
namespace {

// Parts of server.bytes_in_flight_max. The largest body needs one for the bytes received, up to two
// while it is decompressed or decoded (buffers grow by a quarter), and one for its answer.
constexpr uint64_t kBodyPart = 4;

absl::Status CheckEach(const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) HPS_RETURN_IF_ERROR(CheckSetting(setting));
  return absl::OkStatus();
}

// What must not be, and the error if it is.
struct Contradiction {
  bool is_there;
  std::string message;
};
absl::Status FirstOf(const std::vector<Contradiction>& contradictions) {
  for (const auto& [is_there, message] : contradictions)
    if (is_there) return absl::InvalidArgumentError(message);
  return absl::OkStatus();
}

absl::Status CheckServer(const ServerConfig& config) {
  return FirstOf(
      {{config.threads == 1,
        "server.threads = 1: expected at least 2, because one thread refuses excess requests"},
       {config.threads != 0 && config.lookups >= config.threads,
        absl::StrCat("server.lookups = ", config.lookups,
                     ": expected fewer than server.threads, which is ", config.threads)},
       {config.body_bytes_max > config.bytes_in_flight_max / kBodyPart,
        absl::StrCat("server.body_bytes_max = ", FormatByteSize(config.body_bytes_max),
                     ": expected at most a quarter of server.bytes_in_flight_max, which is ",
                     FormatByteSize(config.bytes_in_flight_max),
                     "; a larger body might never be accepted")},
       {config.tls_certificate.empty() != config.tls_key.empty(),
        "server.security.tls_certificate and tls_key must both be set, or neither"},
       {!config.tls_client_ca.empty() && config.tls_certificate.empty(),
        "server.security.tls_client_ca needs server.security.tls_certificate"}});
}

absl::Status CheckModel(ModelConfig& model) {
  HPS_RETURN_IF_ERROR(CheckEach(SettingsOf(model)));
  std::set<std::string> names;
  for (TableConfig& table : model.table) {
    HPS_RETURN_IF_ERROR(CheckEach(SettingsOf(table)));
    const bool is_served =
        model.tables.empty() ||
        std::find(model.tables.begin(), model.tables.end(), table.name) != model.tables.end();
    const std::string section =
        absl::StrCat("model '", model.name, "': [[model.table]] '", table.name, "' is ");
    const std::string budgets =
        absl::StrCat("model '", model.name, "', table '", table.name, "': ");
    HPS_RETURN_IF_ERROR(FirstOf(
        {{!names.insert(table.name).second, section + "given twice"},
         {!is_served, absl::StrCat(section, "not one of its `tables`",
                                   is_served ? "" : NearestNameHint(table.name, model.tables))},
         {table.l2_share.has_value() && table.l2_bytes.has_value(),
          budgets + "l2_share and l2_bytes exclude each other"},
         {table.l1_share.has_value() && table.l1_bytes.has_value(),
          budgets + "l1_share and l1_bytes exclude each other"}}));
  }
  return absl::OkStatus();
}

// Redis divides its memory itself: a table is in level 2 or not.
absl::Status CheckNoL2Budgets(const Config& config) {
  for (const ModelConfig& model : config.model) {
    for (const TableConfig& table : model.table) {
      if (table.l2_share.value_or(0) == 0 && table.l2_bytes.value_or(0) == 0) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "model '", model.name, "', table '", table.name,
          "': l2.kind = \"redis\" has no budgets of tables: l2_share and l2_bytes can only be 0, "
          "which keeps the table out of level 2"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRedis(const Config& config) {
  const RedisConfig& redis = config.l2.redis;
  const bool needs_tls =
      !redis.tls_ca.empty() || !redis.tls_certificate.empty() || !redis.tls_server_name.empty();
  const auto socket =
      std::find_if(redis.nodes.begin(), redis.nodes.end(),
                   [](const std::string& node) { return node.starts_with("unix:"); });
  const std::string& prefix = redis.key_prefix;
  const bool is_prefix = !prefix.empty() && prefix.size() <= kRedisPrefixBytesMax &&
                         prefix.find_first_of("{} ") == std::string::npos;
  HPS_RETURN_IF_ERROR(FirstOf(
      {{redis.nodes.empty(), "l2.redis.nodes: expected at least one address"},
       {!redis.cluster && redis.nodes.size() > 1,
        absl::StrCat("l2.redis.nodes has ", redis.nodes.size(),
                     " addresses: expected one, or l2.redis.cluster = true")},
       {redis.timeout > config.lookup.timeout / 2,
        "l2.redis.timeout is more than half of lookup.timeout: a server of Redis that hangs would "
        "leave a lookup no time for level 3"},
       {redis.write_timeout != Duration::zero() && redis.write_timeout < redis.timeout,
        "l2.redis.write_timeout is less than l2.redis.timeout: a change waits at least once"},
       {!redis.user.empty() && redis.password_file.empty(),
        "l2.redis.user needs l2.redis.password_file"},
       {redis.replica_reads && !redis.cluster,
        "l2.redis.replica_reads needs l2.redis.cluster = true"},
       {redis.tls_certificate.empty() != redis.tls_key.empty(),
        "l2.redis.tls_certificate and l2.redis.tls_key must both be set, or neither"},
       {needs_tls && !redis.tls,
        "l2.redis has settings of TLS (tls_ca, tls_certificate or tls_server_name): they need "
        "l2.redis.tls = true"},
       {redis.tls && socket != redis.nodes.end(),
        absl::StrCat("l2.redis.nodes: '", socket == redis.nodes.end() ? "" : *socket,
                     "' is a unix socket, which l2.redis.tls = true is not for")},
       {!is_prefix, absl::StrCat("l2.redis.key_prefix = ", QuoteToml(prefix), ": expected 1 to ",
                                 kRedisPrefixBytesMax, " bytes without braces and blanks")}}));
  const absl::Status made = MakeRedisTier(redis).status();  // does not connect
  if (absl::IsInvalidArgument(made))
    return absl::InvalidArgumentError(absl::StrCat("l2.redis.nodes: ", made.message()));
  HPS_RETURN_IF_ERROR(made);
  return config.l2.kind == L2Kind::kRedis ? CheckNoL2Budgets(config) : absl::OkStatus();
}

absl::Status CheckSharedGroup(const Config& config) {
  const UpdateConfig& update = config.update;
  if (update.shared_group.empty()) return absl::OkStatus();
  return FirstOf(
      {{!HasRedis(config.l2.kind),
        "update.shared_group needs a level 2 on Redis: it divides the work of writing one that "
        "nodes share"},
       {update.brokers.empty(), "update.shared_group needs update.brokers"},
       {update.shared_group == update.group,
        "update.shared_group is update.group: the one is of all nodes, the other of one node"}});
}

// Budgets in bytes must fit, whatever the store holds.
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

}  // namespace

uint64_t DefaultBodyBytesMax(const ServerConfig& config) {
  return std::min(ServerConfig().body_bytes_max, config.bytes_in_flight_max / kBodyPart);
}

absl::Status ValidateConfig(const Config& given) {
  Config config = given;  // settings refer to members that they could change
  HPS_RETURN_IF_ERROR(CheckEach(SettingsOf(config)));
  if (config.l2.evict_to > config.l2.evict_from) {
    return absl::InvalidArgumentError(absl::StrCat("l2.evict_to = ", config.l2.evict_to,
                                                   ": expected at most l2.evict_from, which is ",
                                                   config.l2.evict_from));
  }
  HPS_RETURN_IF_ERROR(CheckServer(config.server));
  HPS_RETURN_IF_ERROR(
      KafkaSettings::Make(config.update.kafka, config.update.kafka_directory).status());
  std::set<std::string> names;
  for (ModelConfig& model : config.model) {
    HPS_RETURN_IF_ERROR(CheckModel(model));
    if (!names.insert(model.name).second)
      return absl::InvalidArgumentError(absl::StrCat("model '", model.name, "' is given twice"));
  }
  if (HasMemory(config.l2.kind)) {
    HPS_RETURN_IF_ERROR(CheckBudgets(config, "l2", config.l2.bytes_max, &TableConfig::l2_bytes));
  }
  if (HasRedis(config.l2.kind)) HPS_RETURN_IF_ERROR(CheckRedis(config));
  HPS_RETURN_IF_ERROR(CheckSharedGroup(config));
  return CheckBudgets(config, "l1", config.l1.bytes_max, &TableConfig::l1_bytes);
}

}  // namespace hps
