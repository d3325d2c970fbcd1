#include "model/config_settings.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "base/macros.h"
#include "hps/table_spec.h"
#include "hps/units.h"
#include "model/config_values.h"
#include "model/setting_list.h"
#include "tier/device_cache_factory.h"

namespace hps {
namespace {

constexpr std::string_view kAwaitsRedis = "Redis as level 2";
constexpr std::string_view kAwaitsUpdate = "the update stream";
constexpr std::string_view kAwaitsDense = "dense networks";

std::vector<Setting<Config>> StoreSettings() {
  const EnumCodec<SyncMode> sync{{{SyncMode::kAlways, "always"},
                                  {SyncMode::kInterval, "interval"},
                                  {SyncMode::kNever, "never"}}};
  return {
      MakeSetting<Config>(
          {"store", "path", "Directory of the store (level 3); made by the first import."},
          PathCodec{}, [](auto& c) -> auto& { return c.store.path; }),
      MakeSetting<Config>(
          {"store", "cache_bytes", "Block cache of the store, shared by all tables."},
          SizeCodec{0, kSizeMax}, [](auto& c) -> auto& { return c.store.cache_bytes; }),
      MakeSetting<Config>(
          {"store", "write_buffer_bytes",
           "Memory for updates that are not yet in sorted files, shared by all tables."},
          SizeCodec{uint64_t{1} << 20, kSizeMax},
          [](auto& c) -> auto& { return c.store.write_buffer_bytes; }),
      MakeSetting<Config>(
          {"store", "sync",
           "When written updates are forced to the disk: before each acknowledgement, "
           "every `sync_interval`, or when the system likes. Imports always are."},
          sync, [](auto& c) -> auto& { return c.store.sync; }),
      MakeSetting<Config>(
          {"store", "sync_interval", "Longest time between two forced writes."},
          DurationCodec{std::chrono::milliseconds(1), kHour},
          [](auto& c) -> auto& { return c.store.sync_interval; }),
      MakeSetting<Config>(
          {"store", "free_bytes_min", "Writes are refused below this much free disk."},
          SizeCodec{0, kSizeMax}, [](auto& c) -> auto& { return c.store.free_bytes_min; }),
  };
}

std::vector<Setting<Config>> L2Settings() {
  const EnumCodec<L2Kind> kind{
      {{L2Kind::kMemory, "memory"}, {L2Kind::kRedis, "redis"}, {L2Kind::kNone, "none"}}};
  const EnumCodec<EvictionPolicy> eviction{{{EvictionPolicy::kOldest, "oldest"},
                                            {EvictionPolicy::kLeastUsed, "least_used"},
                                            {EvictionPolicy::kRandom, "random"}}};
  Setting<Config> kind_setting = MakeSetting<Config>(
      {"l2", "kind", "What level 2 is; this build has no Redis."}, kind,
      [](auto& c) -> auto& { return c.l2.kind; });
  kind_setting.check = [](const Config& config) {
    if (config.l2.kind != L2Kind::kRedis) return absl::OkStatus();
    return absl::UnimplementedError(
        absl::StrCat("this build does not have ", std::string(kAwaitsRedis), ": use \"memory\""));
  };
  return {
      std::move(kind_setting),
      MakeSetting<Config>(
          {"l2", "bytes_max",
           "Memory of level 2 in all, metadata included; split over the tables by size."},
          SizeCodec{1, kSizeMax}, [](auto& c) -> auto& { return c.l2.bytes_max; }),
      MakeSetting<Config>(
          {"l2", "preload",
           "Share of every table that is loaded at start and when it is imported."},
          NumberCodec{0.0, 1.0}, [](auto& c) -> auto& { return c.l2.preload; }),
      MakeSetting<Config>(
          {"l2", "eviction",
           "Which rows give way: the longest unused, the least often used, or any."},
          eviction, [](auto& c) -> auto& { return c.l2.eviction; }),
      MakeSetting<Config>(
          {"l2", "overflow_margin", "Eviction begins when a table fills this share of its budget."},
          NumberCodec{0.01, 1.0}, [](auto& c) -> auto& { return c.l2.overflow_margin; }),
      MakeSetting<Config>(
          {"l2", "resolution_target", "Eviction ends at this share; at most `overflow_margin`."},
          NumberCodec{0.01, 1.0}, [](auto& c) -> auto& { return c.l2.resolution_target; }),
      MakeSetting<Config>(
          {"l2", "huge_pages", "Ask for huge pages; used where the system gives them."},
          BooleanCodec{}, [](auto& c) -> auto& { return c.l2.huge_pages; }),
      MakeSetting<Config>(
          {"l2.redis", "nodes", "Addresses of the Redis nodes.", kAwaitsRedis}, AddressListCodec{},
          [](auto& c) -> auto& { return c.l2.redis.nodes; }),
      MakeSetting<Config>(
          {"l2.redis", "cluster", "Whether the nodes are a Redis Cluster.", kAwaitsRedis},
          BooleanCodec{}, [](auto& c) -> auto& { return c.l2.redis.cluster; }),
  };
}

std::vector<Setting<Config>> L1Settings() {
  Setting<Config> devices = MakeSetting<Config>(
      {"l1", "devices",
       "GPUs that cache rows: all that are present (none without a GPU), or a list; a "
       "listed one that is missing is an error, as is any list in a build without GPUs."},
      DevicesCodec{}, [](auto& c) -> auto& { return c.l1; });
  // A configuration that was made in code gets the same answer from Store::Open.
  devices.read = [read = std::move(devices.read)](const ConfigValue& value,
                                                  const std::string& directory, Config& config) {
    HPS_RETURN_IF_ERROR(read(value, directory, config));
    if (config.l1.devices.empty()) return absl::OkStatus();
    const absl::Status support = BuiltInDeviceCacheFactory().Support();
    if (support.ok()) return support;
    return absl::Status(support.code(), absl::StrCat("device ", config.l1.devices.front(), ": ",
                                                     support.message()));
  };
  return {
      std::move(devices),
      MakeSetting<Config>(
          {"l1", "bytes_max",
           "Device memory of level 1, per device, metadata included; split over the tables by "
           "size."},
          SizeCodec{1, kSizeMax}, [](auto& c) -> auto& { return c.l1.bytes_max; }),
      MakeSetting<Config>(
          {"l1", "preload", "Share of every table that is loaded at start."}, NumberCodec{0.0, 1.0},
          [](auto& c) -> auto& { return c.l1.preload; }),
      MakeSetting<Config>(
          {"l1", "calls_max",
           "Look-ups at a time on one device; each has buffers on the device and on the host. 0 = "
           "16; of a server its look-ups (`[server] lookups`), divided by the devices, if they are "
           "more and the device has room for them."},
          IntegerCodec{0, kDeviceCallsMax}, [](auto& c) -> auto& { return c.l1.calls_max; }),
      MakeSetting<Config>(
          {"l1", "call_keys_max",
           "Keys of one look-up through level 1, over all its tables; a key takes about 50 bytes "
           "of "
           "a call's buffers on the device and 55 on the host."},
          IntegerCodec{1, kKeysPerCallMax}, [](auto& c) -> auto& { return c.l1.call_keys_max; }),
      MakeSetting<Config>(
          {"l1", "call_staging_bytes",
           "Pinned memory of a look-up for rows that level 1 lacked; what is beyond it is copied "
           "once more."},
          SizeCodec{0, kSizeMax}, [](auto& c) -> auto& { return c.l1.call_staging_bytes; }),
  };
}

std::vector<Setting<Config>> OtherSettings() {
  return {
      MakeSetting<Config>(
          {"lookup", "hit_rate_threshold",
           "Share of a table's keys that the highest level must hold for a call not to "
           "wait for the others; 1.0 = always wait, 0.0 = never."},
          NumberCodec{0.0, 1.0}, [](auto& c) -> auto& { return c.lookup.hit_rate_threshold; }),
      MakeSetting<Config>(
          {"lookup", "timeout",
           "A call answers by then; keys that have not arrived get the default row and "
           "the status `default_degraded`."},
          DurationCodec{Duration(0), kHour}, [](auto& c) -> auto& { return c.lookup.timeout; }),
      MakeSetting<Config>(
          {"threads", "fetch",
           "Workers that read from levels that can block; 0 = the number of cores."},
          IntegerCodec{0, 1024}, [](auto& c) -> auto& { return c.threads.fetch; }),
      MakeSetting<Config>(
          {"threads", "promote", "Workers that copy rows into upper levels after a reply."},
          IntegerCodec{1, 64}, [](auto& c) -> auto& { return c.threads.promote; }),
      MakeSetting<Config>(
          {"threads", "helper_spin",
           "How long a fetch worker that helps look-ups on a device waits for more of them on its "
           "core, where they follow each other that fast; 0 = not at all."},
          DurationCodec{Duration(0), std::chrono::milliseconds(100)},
          [](auto& c) -> auto& { return c.threads.helper_spin; }),
      MakeSetting<Config>(
          {"update", "brokers", "Kafka brokers of the update stream; empty = no stream.",
           kAwaitsUpdate},
          AddressListCodec{}, [](auto& c) -> auto& { return c.update.brokers; }),
  };
}

std::vector<Setting<Config>> AllConfigSettings() {
  std::vector<Setting<Config>> all = StoreSettings();
  for (std::vector<Setting<Config>> part :
       {L2Settings(), L1Settings(), OtherSettings(), ServerSettings()})
    std::move(part.begin(), part.end(), std::back_inserter(all));
  return all;
}

template <typename Target>
void AppendMarkdown(const std::vector<Setting<Target>>& settings, std::string_view section,
                    const Target& defaults, std::string& text) {
  for (const Setting<Target>& setting : settings) {
    if (setting.section != section) continue;
    const std::string value = setting.print(defaults);
    // A bar would end the cell.
    std::string type = setting.type;
    for (size_t at = 0; (at = type.find('|', at)) != std::string::npos; at += 2)
      type.insert(at, "\\");
    absl::StrAppend(&text, "| `", std::string(setting.name), "` | ", type, " | ",
                    value.empty() ? "-" : "`" + value + "`", " | ", std::string(setting.meaning),
                    setting.awaits.empty() ? ""
                                           : " Only the default until this build has " +
                                                 std::string(setting.awaits) + ".",
                    " |\n");
  }
}

}  // namespace

const std::vector<Setting<Config>>& ConfigSettings() {
  static const auto* const settings = new std::vector<Setting<Config>>(AllConfigSettings());
  return *settings;
}

const std::vector<Setting<ModelConfig>>& ModelSettings() {
  static const auto* const settings = new std::vector<Setting<ModelConfig>>{
      MakeSetting<ModelConfig>(
          {"model", "name", "Its tables are those of the store named `<name>/...`."}, NameCodec{},
          [](auto& c) -> auto& { return c.name; }),
      MakeSetting<ModelConfig>(
          {"model", "tables",
           "The model's tables in declared order, without the model's name; empty = "
           "all, in the order of their first import."},
          NameListCodec{}, [](auto& c) -> auto& { return c.tables; }),
      MakeSetting<ModelConfig>(
          {"model", "dense", "ONNX file of the dense network.", kAwaitsDense}, PathCodec{},
          [](auto& c) -> auto& { return c.dense; }),
  };
  return *settings;
}

const std::vector<Setting<TableConfig>>& TableSettings() {
  static const auto* const settings = new std::vector<Setting<TableConfig>>{
      MakeSetting<TableConfig>(
          {"model.table", "name", "The table, without the model's name."}, NameCodec{},
          [](auto& c) -> auto& { return c.name; }),
      MakeSetting<TableConfig>(
          {"model.table", "l2_share",
           "Share of the table that level 2 has room for, instead of a budget by size."},
          OptionalCodec<NumberCodec>{{0.0, 1.0}}, [](auto& c) -> auto& { return c.l2_share; }),
      MakeSetting<TableConfig>(
          {"model.table", "l2_bytes", "The table's budget in level 2."},
          OptionalCodec<SizeCodec>{{0, kSizeMax}}, [](auto& c) -> auto& { return c.l2_bytes; }),
      MakeSetting<TableConfig>(
          {"model.table", "l1_share", "As `l2_share`, for level 1."},
          OptionalCodec<NumberCodec>{{0.0, 1.0}}, [](auto& c) -> auto& { return c.l1_share; }),
      MakeSetting<TableConfig>(
          {"model.table", "l1_bytes", "As `l2_bytes`, for level 1, on each device."},
          OptionalCodec<SizeCodec>{{0, kSizeMax}}, [](auto& c) -> auto& { return c.l1_bytes; }),
      MakeSetting<TableConfig>(
          {"model.table", "l1_hot_keys",
           "NumPy file of keys, hottest first, that level 1 loads at start, before `l1.preload`, "
           "as many as it has room for."},
          PathCodec{}, [](auto& c) -> auto& { return c.l1_hot_keys; }),
  };
  return *settings;
}

template <typename Target>
absl::Status CheckSetting(const Setting<Target>& setting, const Target& target) {
  const std::string value = setting.print(target);
  const auto prefix = [&] {
    return absl::StrCat(std::string(setting.section), ".", std::string(setting.name), " = ", value,
                        ": ");
  };
  if (const absl::Status status = setting.check(target); !status.ok())
    return absl::Status(status.code(), absl::StrCat(prefix(), status.message()));
  if (!setting.awaits.empty() && value != setting.print(Target())) {
    return absl::UnimplementedError(absl::StrCat(prefix(), "this build does not have ",
                                                 std::string(setting.awaits),
                                                 ": leave the setting out"));
  }
  return absl::OkStatus();
}

template absl::Status CheckSetting(const Setting<Config>&, const Config&);
template absl::Status CheckSetting(const Setting<ModelConfig>&, const ModelConfig&);
template absl::Status CheckSetting(const Setting<TableConfig>&, const TableConfig&);

std::vector<std::string> SectionNames() {
  std::vector<std::string> names;
  for (const Setting<Config>& setting : ConfigSettings()) {
    if (names.empty() || names.back() != setting.section) names.emplace_back(setting.section);
  }
  names.insert(names.end(), {"model", "model.table"});
  return names;
}

std::string SettingsAsMarkdown(std::string_view section) {
  std::string text = "| setting | type | default | meaning |\n| --- | --- | --- | --- |\n";
  AppendMarkdown(ConfigSettings(), section, Config(), text);
  AppendMarkdown(ModelSettings(), section, ModelConfig(), text);
  AppendMarkdown(TableSettings(), section, TableConfig(), text);
  return text;
}

}  // namespace hps
