// Reads a table of another program's store for an import: of HugeCTR HPS's RocksDB directory or
// Redis. The database's part implements tier/foreign_store.h and is passed in.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "import/formats/table_reader.h"
#include "tier/foreign_store.h"

namespace hps {

// `name` is "<model>/<table>". `path`, of the store, is for messages. `dim` is required for an
// empty table and checked otherwise. Errors: those of ForeignStore::OpenTable; INVALID_ARGUMENT
// (dim).
absl::StatusOr<std::unique_ptr<TableReader>> OpenForeignTable(std::shared_ptr<ForeignStore> store,
                                                              const std::string& path,
                                                              const std::string& name,
                                                              std::optional<uint32_t> dim);

}  // namespace hps
