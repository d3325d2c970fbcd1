// Creates the configured tiers. tier_factory.cc is the only file of the product that names concrete
// implementations of tiers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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
#include "tier/redis_tier.h"

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

// A part of level 2 (serving/l2_part.h).
struct L2PartTier {
  std::unique_ptr<LossyTier> tier;
  std::string_view name = "level 2";  // in messages; a literal
  // The budget that a table needs to hold `row_count` rows without evicting any; null: the part has
  // no budgets.
  std::function<uint64_t(uint64_t row_count, size_t row_bytes)> bytes_for{};
  // Opens a table that has an import id; null: tables are never shared.
  decltype(RedisTier::open_shared) open_shared{};
};

// Level 2.
struct L2Tiers {
  std::vector<L2PartTier> parts;  // in the order in which they are asked; empty: no level 2
  std::function<RemoteLevelStatistics()> remote_statistics{};  // only with Redis

  // The part whose tables have budgets; null: none has.
  const L2PartTier* budgeted() const {
    const auto found = std::ranges::find_if(
        parts, [](const L2PartTier& part) { return part.bytes_for != nullptr; });
    return found == parts.end() ? nullptr : &*found;
  }
};

// Errors: FAILED_PRECONDITION: every user of the machine may read Redis' password or the key of
// TLS.
absl::Status CheckRedisSecrets(const Config& config);

// REQUIRES: ValidateConfig has accepted the configuration. Connects to nothing. `pinner` is for
// tables in memory, and outlives them; null: devices do not read them. `shares` = false: tables are
// never shared.
// Errors: UNIMPLEMENTED (Redis, in a build without it), FAILED_PRECONDITION (the file with Redis'
// password, or one with certificates or a key, can't be read).
absl::StatusOr<L2Tiers> MakeL2Tiers(const L2Config& config, HostMemoryPinner* pinner, bool shares);

}  // namespace hps
