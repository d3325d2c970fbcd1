// The validated tables of an import request. Making a plan changes nothing. It keeps no file open;
// only a HugeCTR RocksDB directory, or the copy of tables in Redis, stays open.
//
// A request for "<model>/<table>" imports one table. A request for "<model>" imports the tables
// that ListTables names (import/table_listing.h), in that order.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/model_import.h"
#include "hps/model_network.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "import/import_source.h"
#include "tier/foreign_store.h"

namespace hps {

struct ImportPlan {
  std::vector<ImportSource> tables;
  UpdateStart begin{};                    // the time before anything was read
  std::optional<ModelNetwork> network{};  // of the model that the tables are of

  std::vector<TableSpec> specs() const;
  std::string model() const;  // of the tables. REQUIRES: there is one
};

// `opener` opens a database of HugeCTR; without one it is refused. `tables`: those of the model
// that are imported, in declared order, each name once; one without a path is searched in the
// model's directory; empty: all of the directory. Errors, with file, expected and found:
// INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, DATA_LOSS; those of `opener`.
absl::StatusOr<ImportPlan> PlanImport(const ImportRequest& request,
                                      const ForeignStoreOpener& opener = {},
                                      std::span<const TableSource> tables = {});

}  // namespace hps
