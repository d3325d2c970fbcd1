#include "node/config_settings.h"

#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "node/config_values.h"
#include "tier/redis_tier.h"

namespace hps {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr SizeCodec kSize = {0, uint64_t{1} << 50};  // 1 PiB: beyond every machine
constexpr SizeCodec kBudget = {1, kSize.max, true};
constexpr SizeCodec kMessageSize = {1024, uint64_t{1} << 31};
constexpr NumberCodec kShare = {0.0, 1.0};
constexpr NumberCodec kFillShare = {0.01, 1.0};
constexpr DurationCodec kServerTimeout = {milliseconds(1), hours(24)};
constexpr uint64_t kCountMax = uint64_t{1} << 40;
constexpr uint64_t kBytesInFlightMin = uint64_t{4} << 20;

template <typename Codec, typename T>
class CodedValue final : public SettingValue {
 public:
  CodedValue(Codec codec, T& member) : codec_(std::move(codec)), member_(member) {}
  std::string type() const override { return codec_.type(); }
  absl::Status Read(const ConfigValue& value, const std::string& directory) override {
    return codec_.Read(value, directory, member_);
  }
  absl::Status Check() const override { return codec_.Check(member_); }
  std::string Print(const std::string& directory) const override {
    if constexpr (std::is_same_v<Codec, TextCodec>) {
      return codec_.Print(member_, directory);
    } else {
      return codec_.Print(member_);
    }
  }

 private:
  const Codec codec_;
  T& member_;
};

class SettingList {
 public:
  // Settings that follow belong to this section.
  void Section(std::string_view section) { section_ = section; }

  template <typename Codec, typename T>
  void Add(std::string_view name, T& member, Codec codec, std::string_view old_name = "") {
    settings_.push_back(
        {.name = absl::StrCat(section_, ".", std::string(name)),
         .old_name = old_name,
         .value = std::make_unique<CodedValue<Codec, T>>(std::move(codec), member)});
  }

  std::vector<Setting> Take() { return std::move(settings_); }

 private:
  std::string section_;
  std::vector<Setting> settings_;
};

void AddStore(StoreConfig& store, SettingList& list) {
  list.Section("store");
  list.Add("path", store.path, kPath);
  list.Add("cache_bytes", store.cache_bytes, kSize);
  list.Add("write_buffer_bytes", store.write_buffer_bytes, SizeCodec{uint64_t{1} << 20, kSize.max});
  list.Add("sync", store.sync, EnumCodec<SyncMode>{{"always", "interval", "never"}});
  list.Add("sync_interval", store.sync_interval, DurationCodec{milliseconds(1), hours(1)});
  list.Add("free_bytes_min", store.free_bytes_min, kSize);
  list.Add("merge_share", store.merge_share, kShare);
  list.Add("merge_bytes_per_second", store.merge_bytes_per_second, kSize);
}

void AddL2(L2Config& l2, SettingList& list) {
  list.Section("l2");
  list.Add("kind", l2.kind, EnumCodec<L2Kind>{{"memory", "redis", "memory+redis", "none"}});
  list.Add("preload", l2.preload, kShare);
  list.Add("bytes_max", l2.bytes_max, kBudget);
  list.Add("eviction", l2.eviction, EnumCodec<EvictionPolicy>{{"oldest", "least_used", "random"}});
  list.Add("evict_from", l2.evict_from, kFillShare, "l2.overflow_margin");
  list.Add("evict_to", l2.evict_to, kFillShare, "l2.resolution_target");
  list.Add("huge_pages", l2.huge_pages, BooleanCodec{});
  list.Add("pinned_bytes_max", l2.pinned_bytes_max, kSize);
}

void AddRedis(RedisConfig& redis, SettingList& list) {
  list.Section("l2.redis");
  list.Add("nodes", redis.nodes, TextListCodec{"addresses"});
  list.Add("cluster", redis.cluster, BooleanCodec{});
  list.Add("user", redis.user, kText);
  list.Add("password_file", redis.password_file, kPath);
  list.Add("tls", redis.tls, BooleanCodec{});
  list.Add("tls_ca", redis.tls_ca, kPath);
  list.Add("tls_certificate", redis.tls_certificate, kPath);
  list.Add("tls_key", redis.tls_key, kPath);
  list.Add("tls_server_name", redis.tls_server_name, kText);
  list.Add("key_prefix", redis.key_prefix, kText);
  list.Add("connections_per_node", redis.connections_per_node, IntegerCodec<uint32_t>{1, 1024});
  list.Add("replica_reads", redis.replica_reads, BooleanCodec{});
  list.Add("partitions", redis.partitions, IntegerCodec<uint32_t>{0, kRedisPartitionsMax});
  list.Add("timeout", redis.timeout, DurationCodec{milliseconds(1), hours(1)});
  list.Add("write_timeout", redis.write_timeout, DurationCodec{Duration(0), hours(1)});
  list.Add("expire_after", redis.expire_after, DurationCodec{Duration(0), hours(24 * 365)});
}

void AddL1(L1Config& l1, SettingList& list) {
  list.Section("l1");
  list.Add("devices", l1, DevicesCodec{});
  list.Add("bytes_max", l1.bytes_max, kBudget);
  list.Add("preload", l1.preload, kShare);
  list.Add("calls_max", l1.calls_max, IntegerCodec<uint32_t>{0, kDeviceCallsMax});
  list.Add("call_keys_max", l1.call_keys_max, IntegerCodec<uint32_t>{1, kKeysPerCallMax});
  list.Add("call_staging_bytes", l1.call_staging_bytes, kSize);
}

void AddLookup(Config& config, SettingList& list) {
  list.Section("lookup");
  list.Add("hit_rate_threshold", config.lookup.hit_rate_threshold, kShare);
  list.Add("timeout", config.lookup.timeout, DurationCodec{Duration(0), hours(1)});
  list.Section("threads");
  list.Add("fetch", config.threads.fetch, IntegerCodec<uint32_t>{0, 1024});
  list.Add("promote", config.threads.promote, IntegerCodec<uint32_t>{1, 64});
  list.Add("helper_spin", config.threads.helper_spin,
           DurationCodec{Duration(0), milliseconds(100)});
}

void AddServer(ServerConfig& server, SettingList& list) {
  list.Section("server");
  list.Add("http", server.http, kAddress);
  list.Add("grpc", server.grpc, kAddress);
  list.Add("metrics", server.metrics, kAddress);
  list.Add("threads", server.threads, IntegerCodec<uint32_t>{0, 1024});
  list.Add("lookups", server.lookups, IntegerCodec<uint32_t>{0, 1023});
  list.Add("late_answers", server.late_answers, EnumCodec<LateAnswers>{{"degraded", "error"}});
  list.Add("dense_device", server.dense_device, EnumCodec<DenseDevice>{{"auto", "cpu"}});
  list.Add("dense_math", server.dense_math,
           EnumCodec<DenseMath>{{"float32", "tf32", "float16", "bfloat16"}});
  list.Add("drain_timeout", server.drain_timeout, DurationCodec{Duration(0), hours(1)});
}

void AddServerLimits(ServerConfig& server, SettingList& list) {
  list.Add("keys_in_flight_max", server.keys_in_flight_max, IntegerCodec<uint64_t>{1, kCountMax});
  list.Add("bytes_in_flight_max", server.bytes_in_flight_max,
           SizeCodec{kBytesInFlightMin, kSize.max});
  list.Add("connections_max", server.connections_max, IntegerCodec<uint32_t>{1, 1'000'000});
  list.Add("body_bytes_max", server.body_bytes_max, kMessageSize);
  list.Add("response_bytes_max", server.response_bytes_max, kMessageSize);
  list.Add("header_timeout", server.header_timeout, kServerTimeout);
  list.Add("body_timeout", server.body_timeout, kServerTimeout);
  list.Add("write_timeout", server.write_timeout, kServerTimeout);
  list.Add("idle_timeout", server.idle_timeout, kServerTimeout);
  list.Add("stream_idle_timeout", server.stream_idle_timeout, kServerTimeout);
  list.Add("connection_streams_max", server.connection_streams_max,
           IntegerCodec<uint32_t>{1, 1024});
  list.Section("server.batching");
  list.Add("keys_max", server.batch_keys_max, IntegerCodec<uint64_t>{1, kKeysPerCallMax});
  list.Add("wait", server.batch_wait, DurationCodec{Duration(0), seconds(1)});
}

void AddSecurity(ServerConfig& server, SettingList& list) {
  list.Section("server.security");
  list.Add("tls_certificate", server.tls_certificate, kPath);
  list.Add("tls_key", server.tls_key, kPath);
  list.Add("tls_client_ca", server.tls_client_ca, kPath);
  list.Add("token_file", server.token_file, kPath);
  list.Add("repository_control", server.repository_control, BooleanCodec{});
  list.Add("updates", server.updates, BooleanCodec{});
  list.Add("admin_token_file", server.admin_token_file, kPath);
  list.Add("hosts", server.hosts, TextListCodec{"host names"});
  list.Add("secrets_readable_by_all", server.secrets_readable_by_all, BooleanCodec{});
}

void AddUpdate(UpdateConfig& update, SettingList& list) {
  list.Section("update");
  list.Add("brokers", update.brokers, TextListCodec{"host:port"});
  list.Add("tables", update.tables, TextListCodec{"patterns"});
  list.Add("group", update.group, kText);
  list.Add("shared_group", update.shared_group, kText);
  list.Add("rows_per_second_max", update.rows_per_second_max, IntegerCodec<uint64_t>{0, kCountMax});
  list.Add("bytes_per_second_max", update.bytes_per_second_max, kSize);
  list.Add("memory_bytes_max", update.memory_bytes_max, SizeCodec{uint64_t{32} << 20, kSize.max});
  list.Add("parked_bytes_max", update.parked_bytes_max, kSize);
  list.Add("ready_timeout", update.ready_timeout, DurationCodec{Duration(0), hours(1)});
  list.Add("refresh_interval", update.refresh_interval, DurationCodec{milliseconds(1), hours(1)});
}

void AddLog(LogConfig& log, SettingList& list) {
  list.Section("log");
  list.Add("level", log.level, EnumCodec<LogLevel>{{"debug", "info", "warning", "error", "off"}});
  list.Add("format", log.format, EnumCodec<LogFormat>{{"text", "json"}});
  list.Add("file", log.file, kPath);
}

}  // namespace

std::vector<Setting> SettingsOf(Config& config) {
  SettingList list;
  AddStore(config.store, list);
  AddL2(config.l2, list);
  AddRedis(config.l2.redis, list);
  AddL1(config.l1, list);
  AddLookup(config, list);
  AddUpdate(config.update, list);
  AddServer(config.server, list);
  AddServerLimits(config.server, list);
  AddSecurity(config.server, list);
  AddLog(config.log, list);
  return list.Take();
}

std::vector<Setting> SettingsOf(ModelConfig& model) {
  SettingList list;
  list.Section("model");
  list.Add("name", model.name, kName);
  list.Add("tables", model.tables, TextListCodec{"names", true});
  list.Add("dense", model.dense, kPath);
  return list.Take();
}

std::vector<Setting> SettingsOf(TableConfig& table) {
  SettingList list;
  list.Section("model.table");
  list.Add("name", table.name, kName);
  list.Add("l2_share", table.l2_share, OptionalCodec<NumberCodec>{kShare});
  list.Add("l2_bytes", table.l2_bytes, OptionalCodec<SizeCodec>{kSize});
  list.Add("l1_share", table.l1_share, OptionalCodec<NumberCodec>{kShare});
  list.Add("l1_bytes", table.l1_bytes, OptionalCodec<SizeCodec>{kSize});
  list.Add("l1_hot_keys", table.l1_hot_keys, kPath);
  return list.Take();
}

std::string_view AdviceOnRetired(std::string_view name) {
  if (name != "l2.redis.hugectr_import_id") return "";
  return "hps does not answer from HugeCTR's Redis any more: import the tables with `hps import "
         "--config FILE --model MODEL --from redis://HOST:PORT --partitions N`, and remove this "
         "setting together with HugeCTR's servers in [l2.redis] nodes, to which hps would write "
         "rows of its own (docs/from_hugectr.md)";
}

absl::Status CheckSetting(const Setting& setting) {
  const absl::Status status = setting.value->Check();
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(setting.name, " = ", setting.value->Print(""),
                                                  ": ", status.message()));
}

std::vector<std::string> KnownNames() {
  Config config;
  ModelConfig model;
  TableConfig table;
  std::vector<std::string> names;
  std::vector<std::string> sections;
  for (const std::vector<Setting>& settings :
       {SettingsOf(config), SettingsOf(model), SettingsOf(table)}) {
    for (const Setting& setting : settings) {
      names.push_back(setting.name);
      if (sections.empty() || sections.back() != setting.section())
        sections.push_back(setting.section());
    }
  }
  names.insert(names.end(), sections.begin(), sections.end());
  return names;
}

}  // namespace hps
