// The durable tier on RocksDB: how the composition makes it. The contracts are in
// tier/durable_tier.h, the format is in docs/store_format.md.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "l3_rocksdb/options.h"
#include "tier/durable_tier.h"

namespace hps {

// Opens the store; for writing, it also commits imports that were left staged and ready, and
// removes what commands that ended early have left. Everything opened from a store keeps it open.
// Errors: NOT_FOUND (no store there), FAILED_PRECONDITION (a newer format; something else lies
// there), UNAVAILABLE (another process writes to it), RESOURCE_EXHAUSTED (disk full), DATA_LOSS
// (damaged: what and where).
absl::StatusOr<std::unique_ptr<DurableStore>> OpenRocksStore(const RocksStoreOptions& options);

// Begins an import into a store that need not exist yet and that another process may own. Commit
// takes the store's lock, waiting options.lock_timeout for another command, or leaves the import
// ready for the server that has it. `options.mode` and `role` are not looked at.
// Errors: those of DurableStore::BeginImport.
absl::StatusOr<std::unique_ptr<BulkImport>> StageImport(const RocksStoreOptions& options,
                                                        std::span<const TableSpec> specs);

// As PendingImports of hps/store.h. Only the path and the Env of `options` are looked at.
absl::StatusOr<std::vector<PendingImport>> ListPendingImports(const RocksStoreOptions& options);

}  // namespace hps
