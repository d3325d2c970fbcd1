// Reads a table of a HugeCTR RocksDB directory for an import. The RocksDB part implements
// tier/foreign_store.h and is passed in.
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
absl::StatusOr<std::unique_ptr<TableReader>> OpenHugectrRocksdb(std::shared_ptr<ForeignStore> store,
                                                                const std::string& path,
                                                                const std::string& name,
                                                                std::optional<uint32_t> dim);

}  // namespace hps
