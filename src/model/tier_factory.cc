#include "model/tier_factory.h"

#include <chrono>

#include "l2_memory/memory_tier.h"
#include "l3_rocksdb/files/owner_lock.h"
#include "l3_rocksdb/import/hugectr_store.h"
#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/salvage/verify.h"

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

absl::StatusOr<std::unique_ptr<ForeignStore>> OpenForeignStore(const std::string& path) {
  return OpenHugectrStore(path);
}

absl::StatusOr<std::vector<PendingImport>> PendingDurableImports(const StoreConfig& config) {
  return ListPendingImports(OptionsOf(config, OpenMode::kReadOnly, StoreRole::kCommand));
}

absl::StatusOr<VerifyReport> VerifyDurableStore(const StoreConfig& config, bool repair,
                                                const ProgressFunction& progress) {
  return VerifyRocksStore(OptionsOf(config, OpenMode::kReadWrite, StoreRole::kCommand), repair,
                          progress);
}

uint32_t DurableFormatVersion(bool has_networks) {
  return has_networks ? kNetworkFormatVersion : kFirstFormatVersion;
}

L2Tier MakeL2Tier(const L2Config& config) {
  if (config.kind != L2Kind::kMemory) return {};
  const MemoryTierOptions options = {.eviction = config.eviction,
                                     .evict_from = config.evict_from,
                                     .evict_to = config.evict_to,
                                     .huge_pages = config.huge_pages};
  return {.tier = MakeMemoryTier(options),
          .bytes_for = [options](uint64_t row_count, size_t row_bytes) {
            return MemoryTierBytesFor(row_count, row_bytes, options);
          }};
}

}  // namespace hps
