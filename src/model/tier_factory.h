// Makes the tiers that a configuration asks for. tier_factory.cc is the only file of the project
// that names concrete tiers: a new tier is a folder and a line there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/config.h"
#include "hps/store.h"
#include "hps/table_spec.h"
#include "tier/durable_tier.h"
#include "tier/lossy_tier.h"

namespace hps {

// Who writes: a command lets other commands wait for it; beside a server, imports are staged.
enum class StoreRole { kCommand, kServer };

// Level 3. Errors: those of Store::Open.
absl::StatusOr<std::unique_ptr<DurableStore>> OpenDurableStore(const StoreConfig& config,
                                                               OpenMode mode, StoreRole role);

// An import into a store that need not exist and that a server may have.
// Errors: those of DurableStore::BeginImport.
absl::StatusOr<std::unique_ptr<BulkImport>> StageDurableImport(const StoreConfig& config,
                                                               std::span<const TableSpec> specs);

// Errors: those of WaitingImports.
absl::StatusOr<std::vector<WaitingImport>> WaitingDurableImports(const StoreConfig& config);

// Errors: those of VerifyStore.
absl::StatusOr<VerifyReport> VerifyDurableStore(const StoreConfig& config, bool repair,
                                                const ProgressFunction& progress);

// Of the files that this build writes.
uint32_t DurableFormatVersion();

// Level 2.
struct L2Tier {
  std::unique_ptr<LossyTier> tier;  // null: no level 2
  // The budget with which a table holds that many rows of that width without evicting any.
  std::function<uint64_t(uint64_t row_count, size_t row_bytes)> bytes_for;
};
// REQUIRES: ValidateConfig has accepted the configuration.
L2Tier MakeL2Tier(const L2Config& config);

}  // namespace hps
