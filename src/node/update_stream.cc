#include "node/update_stream.h"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "base/macros.h"
#include "update/kafka_source_options.h"
#include "update/parked_messages.h"
#include "update/shared_group.h"

namespace hps {
namespace {

// The same after a restart, and another for each store of a host.
std::string GroupOf(const StoreConfig& store) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  std::error_code error;
  const std::string path = std::filesystem::weakly_canonical(store.path, error).string();
  uint64_t hash = 0;
  for (const char character : path) hash = HashKey(static_cast<unsigned char>(character), hash);
  return absl::StrCat("hps-", host.data(), "-", absl::Hex(hash, absl::kZeroPad16));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StreamReader>> StartUpdateStream(const Config& config,
                                                                UpdateService& updates,
                                                                DurableStore& store) {
  const UpdateConfig& update = config.update;
  if (update.brokers.empty()) return nullptr;
  KafkaSourceOptions options;
  options.brokers = absl::StrJoin(update.brokers, ",");
  HPS_ASSIGN_OR_RETURN(options.settings, KafkaSettings::Make(update.kafka, update.kafka_directory));
  HPS_RETURN_IF_ERROR(options.settings.CheckSecretFiles(config.server.secrets_readable_by_all));
  options.group = update.group.empty() ? GroupOf(config.store) : update.group;
  options.memory_bytes_max = update.memory_bytes_max;
  options.prefetch_bytes_max = update.memory_bytes_max / 2;
  options.batch_bytes_max = update.memory_bytes_max / 8;  // so that paused tables keep little
  options.rows_per_second_max = update.rows_per_second_max;
  options.bytes_per_second_max = update.bytes_per_second_max;
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<UpdateSource> source, MakeKafkaSource(options));
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<ParkedMessages> parked,
                       ParkedMessages::Open(config.store.path, update.parked_bytes_max));
  return StreamReader::Start(std::move(source), std::move(parked),
                             {.updates = &updates,
                              .store = &store,
                              .tables = update.tables,
                              .ready_wait_max = update.ready_timeout});
}

absl::StatusOr<std::unique_ptr<SharedWriter>> StartSharedWriter(const Config& config,
                                                                ModelRegistry& registry) {
  const UpdateConfig& update = config.update;
  if (update.shared_group.empty()) return nullptr;
  SharedGroupOptions group;
  group.brokers = absl::StrJoin(update.brokers, ",");
  HPS_ASSIGN_OR_RETURN(group.settings, KafkaSettings::Make(update.kafka, update.kafka_directory));
  group.group = update.shared_group;
  group.prefetch_bytes_max = update.memory_bytes_max / 4;
  HPS_RETURN_IF_ERROR(MakeKafkaGroup(group).status());  // a setting that is wrong; does not connect
  return SharedWriter::Start({.registry = &registry,
                              .join =
                                  [group](std::vector<std::string> tables) {
                                    SharedGroupOptions options = group;
                                    options.tables = std::move(tables);
                                    return MakeKafkaGroup(options);
                                  },
                              .memory_bytes_max = update.memory_bytes_max / 2});
}

}  // namespace hps
