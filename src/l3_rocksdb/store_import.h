// Begins an import into a store, and is its ImportTarget: the staging directory, the checks against
// the catalog, and the commit or the hand-over to a server.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "hps/table_spec.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/options.h"
#include "tier/durable_tier.h"

namespace hps {

// If `database` is null, the import is for the store that `options` names; Commit opens this store,
// or finds that a server holds it. Errors: those of DurableStore::BeginImport.
absl::StatusOr<std::unique_ptr<BulkImport>> BeginStoreImport(std::shared_ptr<Database> database,
                                                             const RocksStoreOptions& options,
                                                             std::span<const TableSpec> specs);

}  // namespace hps
