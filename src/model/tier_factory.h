// Creates the configured tiers. tier_factory.cc is the only file of the product that names concrete
// implementations of tiers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/config.h"
#include "hps/statistics.h"
#include "hps/store.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "tier/durable_tier.h"
#include "tier/foreign_store.h"
#include "tier/host_memory_pinner.h"
#include "tier/lossy_tier.h"
#include "tier/shared_table.h"

namespace hps {

// The role of the process that writes. If a command has the store open, other commands wait for it;
// if a server has it open, their imports are staged.
enum class StoreRole { kCommand, kServer };

// Level 3. Errors: those of Store::Open.
absl::StatusOr<std::unique_ptr<DurableStore>> OpenDurableStore(const StoreConfig& config,
                                                               OpenMode mode, StoreRole role);

// Errors: those of ServerHasStore (hps/store.h).
absl::StatusOr<bool> ServerHasDurableStore(const StoreConfig& config);

// Starts an import into a store that may not exist yet or that a server may have open.
// Errors: those of DurableStore::BeginImport.
absl::StatusOr<std::unique_ptr<BulkImport>> StageDurableImport(const StoreConfig& config,
                                                               std::span<const TableSpec> specs);

// The databases of other programs that an import can read (src/import): ForeignStoreOpener. Tables
// in Redis are copied to the disk of config.store; config.l2.redis says how to log in there.
absl::StatusOr<std::unique_ptr<ForeignStore>> OpenForeignStore(const Config& config,
                                                               const ImportRequest& request);

// Errors: those of PendingImports (hps/store.h).
absl::StatusOr<std::vector<PendingImport>> PendingDurableImports(const StoreConfig& config);

// Errors: those of VerifyStore.
absl::StatusOr<VerifyReport> VerifyDurableStore(const StoreConfig& config, bool repair,
                                                const ProgressFunction& progress);

// Version of the file format of the stores that this build opens.
uint32_t DurableFormatVersion();

// Level 2.
struct L2Tier {
  std::unique_ptr<LossyTier> tier;  // null: no level 2
  // The budget that a table needs to hold `row_count` rows without evicting any. Only if the tier
  // is budgeted.
  std::function<uint64_t(uint64_t row_count, size_t row_bytes)> bytes_for{};
  std::function<RemoteLevelStatistics()> remote_statistics{};  // only of a level with Redis
  // Opens a table that has an import id (RedisTier::open_shared), in a level with budgets one of
  // `bytes_max`; null: tables are never shared.
  std::function<absl::StatusOr<OpenedSharedTable>(const SharedTableStart& start,
                                                  bool writes_changes, uint64_t bytes_max)>
      open_shared{};

  bool is_budgeted() const { return tier != nullptr && tier->traits().budgeted; }
  bool is_layered() const { return tier != nullptr && tier->traits().layered; }
};

// Errors: FAILED_PRECONDITION: every user of the machine may read Redis' password or the key of
// TLS.
absl::Status CheckRedisSecrets(const Config& config);

// REQUIRES: ValidateConfig has accepted the configuration. Connects to nothing. `pinner` is for
// tables that are in memory alone, and outlives them; null: devices do not read them.
// Errors: UNIMPLEMENTED (Redis, in a build without it), FAILED_PRECONDITION (the file with Redis'
// password, or one with certificates or a key, can't be read).
absl::StatusOr<L2Tier> MakeL2Tier(const L2Config& config, HostMemoryPinner* pinner = nullptr);

}  // namespace hps
