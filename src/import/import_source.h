// One table of an import: where its rows are, their shape, and the table that they become.
//
// Create() validates the files and closes them again, because a model may have more tables than a
// process may open files. A database stays open. Open() opens the files for the import itself.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
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

  // Reads the shape of the table `name`, "<model>/<table>", at `path` or in `store`, confirms that
  // it is as `request` declares, and makes the default row. Reads no rows. Errors, with file,
  // expected and found: INVALID_ARGUMENT (name, dim, dtype), those of OpenTable and
  // RequestedDefaultRow.
  static absl::StatusOr<ImportSource> Create(const ImportRequest& request, const std::string& name,
                                             const std::string& path,
                                             const std::shared_ptr<ForeignStore>& store);

  // Opens and validates the files again. Errors: DATA_LOSS (they have changed since Create),
  // NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED.
  absl::StatusOr<std::unique_ptr<TableReader>> Open() const;
};

}  // namespace hps
