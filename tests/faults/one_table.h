// Imports of one table, m/a, whose rows are stamped.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/macros.h"
#include "testing/fakes/stamped_rows.h"
#include "tier/durable_tier.h"

namespace hps {

inline TableSpec OneTable(uint32_t dim = 8) { return {.name = "m/a", .dim = dim}; }

// Gives the import of OneTable(dim) the rows of the keys 0 to row_count - 1, and commits it.
inline absl::StatusOr<BulkImport::Result> FillOneTable(
    absl::StatusOr<std::unique_ptr<BulkImport>> import, uint64_t row_count, uint32_t dim = 8) {
  HPS_RETURN_IF_ERROR(import.status());
  std::vector<Key> keys;
  for (uint64_t i = 0; i < row_count; ++i) keys.push_back(static_cast<Key>(i));
  StampedRows rows(1, dim * sizeof(float), keys);
  HPS_RETURN_IF_ERROR((*import)->Add(0, 0, rows.keys(), rows.rows()));
  return (*import)->Commit();
}

}  // namespace hps
