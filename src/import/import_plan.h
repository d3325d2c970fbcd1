// The validated tables of an import request. Making a plan changes nothing. It keeps no file open,
// because a model may have more tables than a process may open files; only a HugeCTR RocksDB
// directory, or the copy of tables in Redis, stays open.
//
// A request for "<model>/<table>" imports one table. A request for "<model>" imports every
// sub-folder of the directory and, as table NAME, every file NAME.safetensors in it, in natural
// order of names (t2 before t10), or the given tables in their order. It ignores other files. From
// a database of HugeCTR it imports every table of that model.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/model_import.h"
#include "hps/model_network.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "import/formats/table_reader.h"
#include "tier/foreign_store.h"

namespace hps {

struct ImportSource {
  TableSpec spec;    // dtype is that of the table; the files may hold float32 instead
  TableShape shape;  // of the files
  ImportRequest request;
  std::string path;
  std::shared_ptr<ForeignStore> store{};  // of a database of HugeCTR: the state at its opening

  // Opens and validates the files again. Errors: DATA_LOSS (they have changed since the plan was
  // made), NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED.
  absl::StatusOr<std::unique_ptr<TableReader>> Open() const;
};

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
