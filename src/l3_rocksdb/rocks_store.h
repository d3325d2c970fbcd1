// Creates the durable tier on RocksDB. The contracts are in tier/durable_tier.h, the format is in
// docs/store_format.md.
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

// Opens the store. In a writable mode it also commits staged imports that are ready, and removes
// the remains of commands that ended early. Everything opened from a store keeps it open. Errors:
// NOT_FOUND (no store at the path), FAILED_PRECONDITION (a newer format, or other files at the
// path), UNAVAILABLE (another process writes to it), RESOURCE_EXHAUSTED (disk full), DATA_LOSS
// (names the damage and the file).
absl::StatusOr<std::unique_ptr<DurableStore>> OpenRocksStore(const RocksStoreOptions& options);

// Begins an import. The store need not exist yet, and another process may own it. Commit waits up
// to options.lock_timeout for the store's lock if another command holds it. If a server holds it,
// Commit leaves the import ready for the server. Ignores `options.mode` and `role`. Errors: those
// of DurableStore::BeginImport.
absl::StatusOr<std::unique_ptr<BulkImport>> StageImport(const RocksStoreOptions& options,
                                                        std::span<const TableSpec> specs);

// As PendingImports of hps/store.h. Uses only the path and the Env of `options`.
absl::StatusOr<std::vector<PendingImport>> ListPendingImports(const RocksStoreOptions& options);

}  // namespace hps
