// A table of a HugeCTR RocksDB directory as the source of an import; who knows RocksDB hands it in
// (tier/foreign_store.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "import/formats/table_reader.h"
#include "tier/foreign_store.h"

namespace hps {

// `dim` is needed for an empty table, and confirmed otherwise. `name`: "<model>/<table>". `path`,
// of the store, is for messages. Errors: those of ForeignStore::OpenTable; INVALID_ARGUMENT (dim).
absl::StatusOr<std::unique_ptr<TableReader>> OpenHugectrRocksdb(std::shared_ptr<ForeignStore> store,
                                                                const std::string& path,
                                                                const std::string& name,
                                                                std::optional<uint32_t> dim);

}  // namespace hps
