// Commits imports whose files are complete: links their page files into the store, creates a column
// family for the changes of each table, and switches all tables with one write.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/table_spec.h"
#include "l3_pages/import/staged_import.h"
#include "l3_rocksdb/database.h"
#include "tier/durable_tier.h"

namespace hps {

// Commits the staged imports that are ready, oldest first, and removes staging directories of ended
// commands. An import is rejected if it can never be committed because its files are damaged, its
// tables have another shape, or their import id was used before: it is logged, removed, and added
// to the database's rejected_imports(). An import that cannot be committed now is logged and stays
// staged: also one that this process may not read or remove. Newer imports also stay staged if they
// share tables with it without replacing all of its tables. A rejected import that cannot be
// removed now is among the waiting ones of the result, but newer ones do not wait for it. Errors:
// those of TakeReadyImports.
absl::StatusOr<RefreshResult> CommitReadyImports(Database& database);

// Does the same, then commits `import`, which is newer than all staged ones: all of its tables or
// none. Its directory keeps the files; the caller removes it. Errors of staged imports are not
// errors of `import`, with one exception. If a staged import that stays staged shares a table with
// `import` but is not replaced by it, a later commit of it would overwrite `import`. Errors:
// UNAVAILABLE (this exception), those of BulkImport::Commit.
absl::StatusOr<std::vector<TableInfo>> CommitNewest(Database& database, const StagedImport& import);

// Does the same, then drops a table, or a model with its network. An import that was staged before
// the drop cannot restore a table: if it stays staged, the table is removed from it, and it will
// switch its other tables only. Errors: NOT_FOUND (`name` is neither in the store nor in an import
// that stays staged), FAILED_PRECONDITION (the network of the model reads the table, and the model
// has others), those of Database::DropTables and of RemoveStagedTable. After an error of
// RemoveStagedTable the tables are dropped, and the caller must repeat the drop.
absl::Status DropAfterStaged(Database& database, const std::string& name);

// Errors: FAILED_PRECONDITION (the store has a table of that name with another shape).
absl::Status CheckShapes(const CatalogContents& catalog, std::span<const TableSpec> specs);

// Errors: FAILED_PRECONDITION (a table of that name had the import id before), those of reading the
// catalog. An empty id is fine.
absl::Status CheckImportId(Database& database, std::span<const TableSpec> specs,
                           const std::string& import_id);

}  // namespace hps
