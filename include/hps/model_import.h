// Imports a model whose tables are anywhere, under names of the caller's choice. ImportTables
// (hps/store.h) takes the names from the files of one directory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "hps/config.h"
#include "hps/transfer.h"

namespace hps {

struct TableSource {
  std::string name;                       // without the model's name
  std::string from;                       // a path
  std::optional<uint32_t> dim{};          // instead of ImportRequest::dim
  std::optional<double> default_value{};  // instead of ImportRequest::default_value
};

// Imports these tables of the model `request.name`, in declared order, which switch together.
// `request.from` is not read. Errors: those of ImportTables.
absl::StatusOr<ImportReport> ImportModel(const Config& config, const ImportRequest& request,
                                         std::span<const TableSource> tables);

}  // namespace hps
