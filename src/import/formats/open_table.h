// Opens a table for reading in whatever format it is: as files, as rows in memory, or in a database
// of HugeCTR.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "import/formats/table_reader.h"
#include "tier/foreign_store.h"

namespace hps {

// Opens the rows in memory of `request` if it has any; else the table `name`, "<model>/<table>", of
// `store`, unless that is null; else the files at `path`. If the request names no format, the files
// at `path` show it. The request's own name and path are not read.
//
// Errors: NOT_FOUND, PERMISSION_DENIED; INVALID_ARGUMENT (no format fits the files, or two do; a
// tensor is named, but the files are not safetensors); those of the format.
absl::StatusOr<std::unique_ptr<TableReader>> OpenTable(const ImportRequest& request,
                                                       const std::string& name,
                                                       const std::string& path,
                                                       const std::shared_ptr<ForeignStore>& store);

}  // namespace hps
