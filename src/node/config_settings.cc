#include "node/config_settings.h"

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
constexpr AutoSizeCodec kBudget = {{1, uint64_t{1} << 50}};
constexpr SizeCodec kMessageSize = {1024, uint64_t{1} << 31};
constexpr NumberCodec kShare = {0.0, 1.0};
constexpr NumberCodec kFillShare = {0.01, 1.0};
constexpr DurationCodec kServerTimeout = {milliseconds(1), hours(24)};
constexpr uint64_t kCountMax = uint64_t{1} << 40;
constexpr uint64_t kBytesInFlightMin = uint64_t{4} << 20;

// A setting that is none any more, and what to do about a file that has it.
struct RetiredSetting {
  std::string_view name;
  std::string_view advice;
};
constexpr RetiredSetting kRetiredSettings[] = {
    {"l2.redis.hugectr_import_id",
     "hps does not answer from HugeCTR's Redis any more: import the tables with `hps import "
     "--config FILE --model MODEL --from redis://HOST:PORT --partitions N`, and remove this "
     "setting "
     "together with HugeCTR's servers in [l2.redis] nodes, to which hps would write rows of its "
     "own "
     "(docs/from_hugectr.md)"}};

template <typename Codec, typename T>
class CodedValue final : public SettingValue {
 public:
  CodedValue(Codec codec, T& member) : codec_(std::move(codec)), member_(member) {}
  std::string type() const override { return codec_.type(); }
  absl::Status Read(const ConfigValue& value, const std::string& directory) override {
    return codec_.Read(value, directory, member_);
  }
  absl::Status Check() const override { return codec_.Check(member_); }
  std::string Print() const override { return codec_.Print(member_); }

 private:
  const Codec codec_;
  T& member_;
};

class SettingList {
 public:
  // Settings that follow belong to this section.
  void Section(std::string_view section) { section_ = section; }

  template <typename Codec, typename T>
  void Add(std::string_view name, T& member, Codec codec, std::string_view meaning,
           std::string_view old_name = "") {
    settings_.push_back(
        {.name = absl::StrCat(section_, ".", std::string(name)),
         .meaning = meaning,
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
  list.Add("path", store.path, PathCodec{},
           "Directory of the store (level 3); created by the first import.");
  list.Add("cache_bytes", store.cache_bytes, kSize, "Cache of the store, shared by all tables.");
  list.Add("write_buffer_bytes", store.write_buffer_bytes, SizeCodec{uint64_t{1} << 20, kSize.max},
           "Memory for updates that are not in sorted files yet, shared by all tables.");
  list.Add(
      "sync", store.sync,
      EnumCodec<SyncMode>{{{SyncMode::kAlways, "always"},
                           {SyncMode::kInterval, "interval"},
                           {SyncMode::kNever, "never"}}},
      "When updates are synced to disk: before each acknowledgement, every `sync_interval`, or "
      "whenever the operating system does. Imports are always synced.");
  list.Add("sync_interval", store.sync_interval, DurationCodec{milliseconds(1), hours(1)},
           "Longest time between two syncs.");
  list.Add("free_bytes_min", store.free_bytes_min, kSize,
           "Writes are refused if less than this is free on the disk.");
  list.Add("merge_share", store.merge_share, kShare,
           "When this share of a table's rows has changed since its page files were made, a server "
           "merges the changes into new page files in the background (at least 65,536 keys); 0.0 = "
           "never.");
  list.Add("merge_bytes_per_second", store.merge_bytes_per_second, kSize,
           "Bytes that such a merge reads and writes per second; 0 = no limit.");
}

void AddL2(L2Config& l2, SettingList& list) {
  list.Section("l2");
  list.Add("kind", l2.kind,
           EnumCodec<L2Kind>{{{L2Kind::kMemory, "memory"},
                              {L2Kind::kRedis, "redis"},
                              {L2Kind::kMemoryRedis, "memory+redis"},
                              {L2Kind::kNone, "none"}}},
           "Where level 2 is: in this process's memory, in Redis, in memory with Redis behind it, "
           "or nowhere.");
  list.Add("preload", l2.preload, kShare,
           "Share of every table that is loaded at start and after an import.");
  list.Add("bytes_max", l2.bytes_max, kBudget,
           "Memory of level 2, metadata included; divided among the tables. `\"auto\"` = what they "
           "need, at most a third of the memory that is available at the start. This setting and "
           "those below it are for the part in memory.");
  list.Add("eviction", l2.eviction,
           EnumCodec<EvictionPolicy>{{{EvictionPolicy::kOldest, "oldest"},
                                      {EvictionPolicy::kLeastUsed, "least_used"},
                                      {EvictionPolicy::kRandom, "random"}}},
           "Rows to evict first: least recently used, least often used, or random.");
  list.Add("evict_from", l2.evict_from, kFillShare,
           "Eviction starts when a table fills this share of its budget.", "l2.overflow_margin");
  list.Add("evict_to", l2.evict_to, kFillShare,
           "Eviction stops when the table is down to this share; at most `evict_from`.",
           "l2.resolution_target");
  list.Add("huge_pages", l2.huge_pages, BooleanCodec{},
           "Ask the operating system for huge pages; used if available.");
  list.Add(
      "pinned_bytes_max", l2.pinned_bytes_max, kSize,
      "Largest part of this memory that is pinned, so that GPUs can read rows in it directly (see "
      "above). 0 = no memory is pinned.");
}

void AddRedis(RedisConfig& redis, SettingList& list) {
  list.Section("l2.redis");
  list.Add("nodes", redis.nodes, TextListCodec{"list of addresses"},
           "Addresses of Redis servers: `host:port`, `[IPv6]:port` or `unix:/path`. Of a cluster, "
           "some of its nodes, which are asked for the others; else the one server.");
  list.Add("cluster", redis.cluster, BooleanCodec{}, "The nodes are a Redis Cluster.");
  list.Add("user", redis.user, TextCodec{},
           "User of the servers' ACL, with `password_file`; not set = their default user.");
  list.Add("password_file", redis.password_file, PathCodec{},
           "File with the password, one line, read again for every new connection; not set = no "
           "password.");
  list.Add("tls", redis.tls, BooleanCodec{},
           "Connect by TLS, and verify the servers' certificates.");
  list.Add("tls_ca", redis.tls_ca, PathCodec{},
           "File (PEM) with the certificates that sign those of the servers; not set = those that "
           "the system trusts.");
  list.Add("tls_certificate", redis.tls_certificate, PathCodec{},
           "File (PEM) with this client's certificate, for servers that want one; with `tls_key`.");
  list.Add("tls_key", redis.tls_key, PathCodec{}, "File (PEM) with the key of `tls_certificate`.");
  list.Add("tls_server_name", redis.tls_server_name, TextCodec{},
           "Name that must be in the servers' certificates; not set = the host of each address.");
  list.Add("key_prefix", redis.key_prefix, TextCodec{},
           "The names of all keys begin with it and a colon. The servers' ACL can be limited to "
           "it.");
  list.Add("connections_per_node", redis.connections_per_node, IntegerCodec<uint32_t>{1, 1024},
           "Most connections to each node; further calls wait for one.");
  list.Add("replica_reads", redis.replica_reads, BooleanCodec{},
           "Read rows from the replicas of a cluster. A row may then go back to its value before "
           "a change for as long as replicas lag behind their masters.");
  list.Add("partitions", redis.partitions, IntegerCodec<uint32_t>{0, kRedisPartitionsMax},
           "Parts of each table in a cluster, spread evenly over its slots. 0 = 64.");
  list.Add("timeout", redis.timeout, DurationCodec{milliseconds(1), hours(1)},
           "Longest wait for a node's answer. A node that takes longer is bypassed.");
  list.Add("write_timeout", redis.write_timeout, DurationCodec{Duration(0), hours(1)},
           "Longest time that one change of rows, or one insertion after a lookup, spends in Redis "
           "altogether; 0 = ten times `timeout`.");
  list.Add("expire_after", redis.expire_after, DurationCodec{Duration(0), hours(24 * 365)},
           "Redis forgets a row this long after it was inserted; 0 = never.");
}

void AddL1(L1Config& l1, SettingList& list) {
  list.Section("l1");
  list.Add("devices", l1, DevicesCodec{},
           "GPUs that cache rows: all that are present (none without a GPU), or a list. A listed "
           "GPU that is missing is an error, as is any list in a build without GPU support.");
  list.Add("bytes_max", l1.bytes_max, kBudget,
           "Memory of level 1 on each device, metadata included; divided among the tables. "
           "`\"auto\"` = what they need, at most 0.6 of the device memory that is free at the "
           "start, on the device that has least.");
  list.Add("preload", l1.preload, kShare, "Share of every table that is loaded at start.");
  list.Add(
      "calls_max", l1.calls_max, IntegerCodec<uint32_t>{0, kDeviceCallsMax},
      "Concurrent lookups per device; each has its own buffers on the device and on the host. 0 "
      "= 16. For a server, 0 = max(16, `[server] lookups` / number of devices), reduced if "
      "device memory is short.");
  list.Add(
      "call_keys_max", l1.call_keys_max, IntegerCodec<uint32_t>{1, kKeysPerCallMax},
      "Keys of one lookup through level 1, over all its tables; a larger lookup is answered in "
      "pieces. Each key takes about 50 bytes of buffers on the device and 55 on the host.");
  list.Add("call_staging_bytes", l1.call_staging_bytes, kSize,
           "Pinned memory of one lookup for rows that level 1 does not have, at first. It grows "
           "with the lookups, as described below.");
}

void AddLookup(Config& config, SettingList& list) {
  list.Section("lookup");
  list.Add(
      "hit_rate_threshold", config.lookup.hit_rate_threshold, kShare,
      "If a table's hit rate in the highest level is at least this, the lookup does not wait for "
      "the table's misses; 1.0 = always wait, 0.0 = never wait.");
  list.Add("timeout", config.lookup.timeout, DurationCodec{Duration(0), hours(1)},
           "Longest wait of a lookup. Keys whose rows have not arrived get the default row and the "
           "status `default_degraded`.");
  list.Section("threads");
  list.Add("fetch", config.threads.fetch, IntegerCodec<uint32_t>{0, 1024},
           "Threads that read from levels that can block; 0 = number of cores.");
  list.Add("promote", config.threads.promote, IntegerCodec<uint32_t>{1, 64},
           "Threads that copy rows into upper levels after a lookup.");
  list.Add("helper_spin", config.threads.helper_spin, DurationCodec{Duration(0), milliseconds(100)},
           "How long a fetch thread that helped a lookup on a device spins for the next one before "
           "it sleeps; 0 = does not spin.");
}

void AddServer(ServerConfig& server, SettingList& list) {
  list.Section("server");
  list.Add("http", server.http, ListenCodec{}, "Address of HTTP; empty = off.");
  list.Add("grpc", server.grpc, ListenCodec{}, "Address of gRPC; empty = off.");
  list.Add("metrics", server.metrics, ListenCodec{},
           "Additional address that serves only the metrics; empty = off.");
  list.Add("threads", server.threads, IntegerCodec<uint32_t>{0, 1024},
           "Threads of each protocol, at least 2; 0 = two per core.");
  list.Add("lookups", server.lookups, IntegerCodec<uint32_t>{0, 1023},
           "Concurrent lookups, fewer than `threads`; 0 = one per core.");
  list.Add("late_answers", server.late_answers,
           EnumCodec<LateAnswers>{
               {{LateAnswers::kDegraded, "degraded"}, {LateAnswers::kError, "error"}}},
           "Answer to a request whose rows have not all arrived by its deadline: marked default "
           "rows, or the error DEADLINE_EXCEEDED.");
  list.Add(
      "dense_device", server.dense_device,
      EnumCodec<DenseDevice>{{{DenseDevice::kAuto, "auto"}, {DenseDevice::kCpu, "cpu"}}},
      "Where dense networks run: `auto` = on the GPUs of level 1, or on the CPU if these can't run "
      "a network (docs/ctr_models.md).");
  list.Add("dense_math", server.dense_math,
           EnumCodec<DenseMath>{{{DenseMath::kFloat32, "float32"},
                                 {DenseMath::kTf32, "tf32"},
                                 {DenseMath::kFloat16, "float16"},
                                 {DenseMath::kBfloat16, "bfloat16"}}},
           "Number type of the matrix products of dense networks on a GPU; with the last two, also "
           "of the values between layers (docs/ctr_models.md). Sums are float32.");
  list.Add("drain_timeout", server.drain_timeout, DurationCodec{Duration(0), hours(1)},
           "How long running requests may continue after SIGTERM.");
}

void AddServerLimits(ServerConfig& server, SettingList& list) {
  list.Add("keys_in_flight_max", server.keys_in_flight_max, IntegerCodec<uint64_t>{1, kCountMax},
           "Keys of all requests in progress; further requests are refused at once.");
  list.Add("bytes_in_flight_max", server.bytes_in_flight_max,
           SizeCodec{kBytesInFlightMin, kSize.max},
           "Memory of all requests and answers in progress; further requests are refused at once.");
  list.Add("connections_max", server.connections_max, IntegerCodec<uint32_t>{1, 1'000'000},
           "Open connections, of HTTP and of gRPC each.");
  list.Add("body_bytes_max", server.body_bytes_max, kMessageSize,
           "Decompressed body of a request, and its tensors; at most a quarter of "
           "`bytes_in_flight_max`, which is also the default if that is less than 64MiB.");
  list.Add("response_bytes_max", server.response_bytes_max, kMessageSize, "Tensors of an answer.");
  list.Add("header_timeout", server.header_timeout, kServerTimeout,
           "Time to receive a request's header, from its first byte to its last.");
  list.Add("body_timeout", server.body_timeout, kServerTimeout,
           "Time to receive a request's body.");
  list.Add("write_timeout", server.write_timeout, kServerTimeout,
           "Time for the client to receive an answer; ten times as long if it takes 16 KiB in each "
           "5 s.");
  list.Add("idle_timeout", server.idle_timeout, kServerTimeout,
           "Time between two requests of a connection.");
  list.Add("stream_idle_timeout", server.stream_idle_timeout, kServerTimeout,
           "Time between two requests of a gRPC stream.");
  list.Add("connection_streams_max", server.connection_streams_max, IntegerCodec<uint32_t>{1, 1024},
           "Open gRPC streams per connection; at most 4,096 over all connections.");
  list.Section("server.batching");
  list.Add("keys_max", server.batch_keys_max, IntegerCodec<uint64_t>{1, kKeysPerCallMax},
           "Keys of one lookup, over all requests that it answers. A larger request is looked up "
           "alone, in pieces.");
  list.Add("wait", server.batch_wait, DurationCodec{Duration(0), seconds(1)},
           "How long a request may wait for others while lookups are running. It never waits if "
           "none is running.");
}

void AddSecurity(ServerConfig& server, SettingList& list) {
  list.Section("server.security");
  list.Add("tls_certificate", server.tls_certificate, PathCodec{},
           "PEM file with the server's certificate chain; not set = no TLS.");
  list.Add("tls_key", server.tls_key, PathCodec{}, "PEM file with the certificate's key.");
  list.Add("tls_client_ca", server.tls_client_ca, PathCodec{},
           "PEM file; clients must present a certificate signed by it.");
  list.Add("token_file", server.token_file, PathCodec{},
           "File with the bearer token, one line; not set = the environment variable HPS_TOKEN, if "
           "set.");
  list.Add("repository_control", server.repository_control, BooleanCodec{},
           "Allow loading and unloading models through the API; requires a token.");
  list.Add("updates", server.updates, BooleanCodec{},
           "Allow changing rows through the API; requires a token.");
  list.Add("admin_token_file", server.admin_token_file, PathCodec{},
           "File with a second bearer token. If set, loads, unloads, refreshes and changes of rows "
           "need it, and the token of `token_file` is for everything else.");
  list.Add("hosts", server.hosts, TextListCodec{"list of host names"},
           "Names by which clients may address an HTTP listener on the loopback that asks for no "
           "token, besides `localhost`, 127.0.0.0/8 and `[::1]`. A request for another name is "
           "answered 421.");
  list.Add("secrets_readable_by_all", server.secrets_readable_by_all, BooleanCodec{},
           "Take tokens, keys and passwords from files that every user of the machine may read, "
           "with a warning. Without it such a file is an error.");
}

void AddUpdate(UpdateConfig& update, SettingList& list) {
  list.Section("update");
  list.Add("brokers", update.brokers, TextListCodec{"list of host:port"},
           "Kafka brokers of the update stream; empty = no stream.");
  list.Add("tables", update.tables, TextListCodec{"list of patterns"},
           "Tables whose streams are read: patterns of `MODEL/TABLE`, in which `*` stands for any "
           "text and `?` for one character.");
  list.Add("group", update.group, TextCodec{},
           "Consumer group under which this node tells Kafka how far it is. No two nodes may share "
           "one. Not set = a name made from the host and the path of the store.");
  list.Add(
      "shared_group", update.shared_group, TextCodec{},
      "Consumer group in which nodes divide the work of writing changes into a level 2 on Redis "
      "that they share. The same on all of these nodes, and used by nothing else. Not set = "
      "each node writes every change.");
  list.Add("rows_per_second_max", update.rows_per_second_max, IntegerCodec<uint64_t>{0, kCountMax},
           "Rows applied per second, on average; 0 = no limit.");
  list.Add("bytes_per_second_max", update.bytes_per_second_max, kSize,
           "Bytes of messages applied per second, on average; 0 = no limit.");
  list.Add("memory_bytes_max", update.memory_bytes_max, SizeCodec{uint64_t{32} << 20, kSize.max},
           "Memory for messages that are read and not applied yet; half as much again is read "
           "ahead.");
  list.Add("parked_bytes_max", update.parked_bytes_max, kSize,
           "Size of the file that keeps messages which cannot be applied. Beyond it they are only "
           "counted.");
  list.Add("ready_timeout", update.ready_timeout, DurationCodec{Duration(0), hours(1)},
           "Longest time that a starting server is not ready because it applies changes again that "
           "its store lost in a power cut.");
  list.Add("refresh_interval", update.refresh_interval, DurationCodec{milliseconds(1), hours(1)},
           "Time between two refreshes of level 1 with the rows that have changed.");
}

void AddLog(LogConfig& log, SettingList& list) {
  list.Section("log");
  list.Add("level", log.level,
           EnumCodec<LogLevel>{{{LogLevel::kDebug, "debug"},
                                {LogLevel::kInfo, "info"},
                                {LogLevel::kWarning, "warning"},
                                {LogLevel::kError, "error"},
                                {LogLevel::kOff, "off"}}},
           "Lines below this level are not written.");
  list.Add("format", log.format,
           EnumCodec<LogFormat>{{{LogFormat::kText, "text"}, {LogFormat::kJson, "json"}}},
           "Format of a line.");
  list.Add("file", log.file, PathCodec{},
           "A regular file, opened for appending and reopened on SIGHUP; not set = stderr.");
}

// A default-made object of each kind has the defaults.
std::vector<Setting> SettingsOfEverything(Config& config, ModelConfig& model, TableConfig& table) {
  std::vector<Setting> all = SettingsOf(config);
  for (Setting& setting : SettingsOf(model)) all.push_back(std::move(setting));
  for (Setting& setting : SettingsOf(table)) all.push_back(std::move(setting));
  return all;
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
  list.Add("name", model.name, NameCodec{}, "The model's tables in the store are `<name>/...`.");
  list.Add("tables", model.tables, NameListCodec{},
           "The model's tables in declared order, without the model's name; empty = all, in the "
           "order of their first import.");
  list.Add("dense", model.dense, PathCodec{},
           "The dense network, a file of ONNX, instead of the one that was imported with the "
           "model; read at each load.");
  return list.Take();
}

std::vector<Setting> SettingsOf(TableConfig& table) {
  SettingList list;
  list.Section("model.table");
  list.Add("name", table.name, NameCodec{}, "The table, without the model's name.");
  list.Add("l2_share", table.l2_share, OptionalCodec<NumberCodec>{kShare},
           "Budget in level 2 as a share of the table.");
  list.Add("l2_bytes", table.l2_bytes, OptionalCodec<SizeCodec>{kSize}, "Budget in level 2.");
  list.Add("l1_share", table.l1_share, OptionalCodec<NumberCodec>{kShare},
           "Budget in level 1 of each device as a share of the table.");
  list.Add("l1_bytes", table.l1_bytes, OptionalCodec<SizeCodec>{kSize},
           "Budget in level 1 of each device.");
  list.Add("l1_hot_keys", table.l1_hot_keys, PathCodec{},
           "NumPy file of keys, hottest first. Level 1 loads as many as fit at start, before "
           "`l1.preload`.");
  return list.Take();
}

std::string_view AdviceOnRetired(std::string_view name) {
  for (const RetiredSetting& retired : kRetiredSettings)
    if (retired.name == name) return retired.advice;
  return "";
}

absl::Status CheckSetting(const Setting& setting) {
  const absl::Status status = setting.value->Check();
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(setting.name, " = ", setting.value->Print(), ": ",
                                                  status.message()));
}

std::vector<std::string> SettingNames() {
  Config config;
  ModelConfig model;
  TableConfig table;
  std::vector<std::string> names;
  for (const Setting& setting : SettingsOfEverything(config, model, table))
    names.push_back(setting.name);
  return names;
}

std::vector<std::string> SectionNames() {
  std::vector<std::string> sections;
  for (const std::string& name : SettingNames()) {
    const std::string section = name.substr(0, name.rfind('.'));
    if (sections.empty() || sections.back() != section) sections.push_back(section);
  }
  return sections;
}

std::string SettingsAsMarkdown(std::string_view section) {
  Config config;
  ModelConfig model;
  TableConfig table;
  std::string text = "| setting | type | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const Setting& setting : SettingsOfEverything(config, model, table)) {
    if (setting.section() != section) continue;
    const std::string value = setting.value->Print();
    std::string type = setting.value->type();
    // An unescaped bar would end the cell.
    for (size_t at = 0; (at = type.find('|', at)) != std::string::npos; at += 2)
      type.insert(at, "\\");
    absl::StrAppend(&text, "| `", setting.short_name(), "` | ", type, " | ",
                    value.empty() ? "-" : "`" + value + "`", " | ", std::string(setting.meaning));
    if (!setting.old_name.empty())
      absl::StrAppend(&text, " Old name: `", std::string(setting.old_name), "`.");
    absl::StrAppend(&text, " |\n");
  }
  return text;
}

}  // namespace hps
