// What an import is going to load: the request's tables, validated. Making a plan changes nothing
// anywhere and keeps no file open, so that a model may have more tables than a process has files;
// only a HugeCTR RocksDB directory stays open.
//
// "<model>/<table>" is one table. "<model>" is every sub-folder of the directory, and every file
// NAME.safetensors in it, as table NAME, in natural order of names (t2 before t10); other files are
// left alone. Of a HugeCTR RocksDB directory it is every table of that model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "hps/table_spec.h"
#include "hps/transfer.h"
#include "import/formats/table_reader.h"
#include "tier/foreign_store.h"

namespace hps {

struct ImportSource {
  TableSpec spec;    // the dtype that the table will have; the files' may be float32 instead
  TableShape shape;  // of the files
  ImportRequest request;
  std::string path;
  std::shared_ptr<ForeignStore> store{};  // of format kHugectrRocksdb, as it was at its opening

  // Opens and validates the files once more. Errors: DATA_LOSS (they are not what they were when
  // the plan was made), NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED.
  absl::StatusOr<std::unique_ptr<TableReader>> Open() const;
};

struct ImportPlan {
  std::vector<ImportSource> tables;

  std::vector<TableSpec> specs() const;
};

// Errors: INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, DATA_LOSS, with file, expected and found.
// `opener` reads what format kHugectrRocksdb names.
absl::StatusOr<ImportPlan> PlanImport(const ImportRequest& request,
                                      const ForeignStoreOpener& opener = {});

}  // namespace hps
