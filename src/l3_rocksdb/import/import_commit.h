// The commit of an import whose files are complete: new column families, the files moved into them,
// one write that switches all its tables.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/table_spec.h"
#include "l3_rocksdb/database.h"
#include "l3_rocksdb/import/staging.h"
#include "tier/durable_tier.h"

namespace hps {

// All or nothing. The staging directory keeps its files, so that a process that dies in between
// loses nothing; the caller removes it afterwards.
// `records` may hold more records of the new incarnations; they are written with the switch.
// Errors: those of BulkImport::Commit; DATA_LOSS (a file is not as it was written).
absl::StatusOr<std::vector<TableInfo>> CommitImport(Database& database, const StagedImport& import,
                                                    rocksdb::WriteBatch& records);

// Commits the imports that were left staged and ready, oldest first, and removes dead staging. An
// import that can't ever be committed, because its own files are damaged or its tables have another
// shape, is logged, removed, and noted in the database's lost_imports(). One that can't be
// committed now is logged and waits, and with it newer ones that share tables with it but do not
// replace all of it. Returns whether a table has changed. Errors: the first import's that waits,
// unless one has changed a table.
absl::StatusOr<bool> CommitReadyImports(Database& database);

// The same, then `import`, which is newer than all of them. What becomes of them is no error of
// `import`, unless one that it does not replace has to wait and shares a table with it: then it
// would come back later and switch over `import`. Errors: UNAVAILABLE (that), those of
// CommitImport.
absl::StatusOr<std::vector<TableInfo>> CommitNewest(Database& database, const StagedImport& import);

// The same, then drops `table`: an import that was staged before the drop can't bring the table
// back after it. One that has to wait loses the table, and will switch its others without it.
// Errors: NOT_FOUND (neither the store nor one that waits has it), those of Database::DropTable and
// of TakeOutTable; with the latter the table is gone, and the drop is to be tried again.
absl::Status DropAfterStaged(Database& database, const std::string& table);

// Errors: FAILED_PRECONDITION (the store has a table of that name with another shape).
absl::Status CheckShapes(const CatalogContents& catalog, std::span<const TableSpec> specs);

}  // namespace hps
