#include "node/tier_factory.h"

#include <chrono>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "base/secret_file.h"
#include "import/formats/foreign_copy.h"
#include "l2_memory/memory_tier.h"
#include "l3_rocksdb/files/owner_lock.h"
#include "l3_rocksdb/hugectr_store.h"
#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/verify/verify.h"

namespace hps {
namespace {

// A command waits this long for another command to finish with the store.
constexpr auto kCommandLockTimeout = std::chrono::seconds(30);

RocksStoreOptions OptionsOf(const StoreConfig& config, OpenMode mode, StoreRole role) {
  return {.config = config,
          .mode = mode,
          .role = role == StoreRole::kServer ? OwnerRole::kServer : OwnerRole::kCommand,
          .lock_timeout = kCommandLockTimeout};
}

L2PartTier MakeMemoryPart(const L2Config& config, HostMemoryPinner* pinner) {
  const MemoryTierOptions options = {.eviction = config.eviction,
                                     .evict_from = config.evict_from,
                                     .evict_to = config.evict_to,
                                     .huge_pages = config.huge_pages,
                                     .pinner = pinner};
  return {.tier = MakeMemoryTier(options),
          .bytes_for = [options](uint64_t row_count, size_t row_bytes) {
            return MemoryTierBytesFor(row_count, row_bytes, options);
          }};
}

// A server that starts without its password would only warn, once a lookup needs a connection.
absl::Status CheckPasswordFile(const std::string& path) {
  constexpr size_t kBytesMax = 1;  // as many as show that it is not empty
  if (path.empty() || !ReadSecretLine(path, path, kBytesMax).value_or("").empty())
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "l2.redis.password_file = ", path, ": expected a readable file with the password"));
}

absl::Status AddRedisPart(const RedisConfig& config, bool shares, L2Tiers* level) {
  HPS_RETURN_IF_ERROR(CheckPasswordFile(config.password_file));
  HPS_RETURN_IF_ERROR(CheckRedisTlsFiles(config));
  HPS_ASSIGN_OR_RETURN(RedisTier redis, MakeRedisTier(config));
  if (!shares) redis.open_shared = nullptr;
  level->parts.push_back(
      {.tier = std::move(redis.tier), .open_shared = std::move(redis.open_shared)});
  level->remote_statistics = std::move(redis.statistics);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DurableStore>> OpenDurableStore(const StoreConfig& config,
                                                               OpenMode mode, StoreRole role) {
  return OpenRocksStore(OptionsOf(config, mode, role));
}

absl::StatusOr<bool> ServerHasDurableStore(const StoreConfig& config) {
  return OwnerLock::ServerHasStore(config.path);
}

absl::StatusOr<std::unique_ptr<BulkImport>> StageDurableImport(const StoreConfig& config,
                                                               std::span<const TableSpec> specs) {
  return StageImport(OptionsOf(config, OpenMode::kCreate, StoreRole::kCommand), specs);
}

absl::StatusOr<std::unique_ptr<ForeignStore>> OpenForeignStore(const Config& config,
                                                               const ImportRequest& request) {
  if (request.format != TableFormat::kHugectrRedis) return OpenHugectrStore(request.from);
  HPS_RETURN_IF_ERROR(CheckRedisSecrets(config));
  HugectrRedisSource source = {.url = request.from, .connection = config.l2.redis};
  source.partitions = request.partitions.value_or(source.partitions);
  if (source.partitions < 1 || source.partitions > kHugectrPartitionsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "partitions: expected 1 to ", kHugectrPartitionsMax, ", found ", source.partitions));
  }
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<ForeignCache> cache, OpenHugectrRedis(source));
  return CopyForeignCache(
      std::move(cache),
      {.what = request.from, .directory = config.store.path, .progress = request.progress});
}

absl::StatusOr<std::vector<PendingImport>> PendingDurableImports(const StoreConfig& config) {
  return ListPendingImports(OptionsOf(config, OpenMode::kReadOnly, StoreRole::kCommand));
}

absl::StatusOr<VerifyReport> VerifyDurableStore(const StoreConfig& config, bool repair,
                                                const ProgressFunction& progress) {
  return VerifyRocksStore(OptionsOf(config, OpenMode::kReadWrite, StoreRole::kCommand), repair,
                          progress);
}

uint32_t DurableFormatVersion() { return kStoreFormatVersion; }

absl::Status CheckRedisSecrets(const Config& config) {
  const RedisConfig& redis = config.l2.redis;
  const bool allowed = config.server.secrets_readable_by_all;
  HPS_RETURN_IF_ERROR(CheckSecretFile("[l2.redis] password_file", redis.password_file, allowed));
  return CheckSecretFile("[l2.redis] tls_key", redis.tls_key, allowed);
}

absl::StatusOr<L2Tiers> MakeL2Tiers(const L2Config& config, HostMemoryPinner* pinner, bool shares) {
  L2Tiers level;
  if (HasMemory(config.kind)) level.parts.push_back(MakeMemoryPart(config, pinner));
  if (HasRedis(config.kind)) HPS_RETURN_IF_ERROR(AddRedisPart(config.redis, shares, &level));
  if (level.parts.size() > 1) {
    level.parts[0].name = "level 2 in memory";
    level.parts[1].name = "level 2 on Redis";
  }
  return level;
}

}  // namespace hps
