// The tables that the import of a whole model consists of, by their names and places. Opens none.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/model_import.h"
#include "hps/transfer.h"
#include "tier/foreign_store.h"

namespace hps {

// With a `store`: its tables of the model `request.name`. With `tables`: these in their order, and
// those without a path are searched in the directory `request.from`. Else every sub-folder of that
// directory (a HugeCTR folder NAME.model is the table NAME) and every file NAME.safetensors or
// NAME.bin; other files are ignored. Lists in natural order of names: t2 before t10.
//
// Errors: NOT_FOUND (no such directory; no file of one of `tables`; no table of the model in the
// store), INVALID_ARGUMENT (no table, two of one name, or one that can't be examined).
absl::StatusOr<std::vector<TableSource>> ListTables(const ImportRequest& request,
                                                    const ForeignStore* store,
                                                    std::span<const TableSource> tables);

}  // namespace hps
