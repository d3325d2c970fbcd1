#include "train/table_calls.h"

#include "base/macros.h"
#include "train/gradient_bound.h"

namespace hps {

absl::Status ForwardTables(std::span<const TableForward> tables) {
  for (const TableForward& table : tables)
    HPS_RETURN_IF_ERROR(table.shard->Forward(table.batch, table.step, table.out));
  return absl::OkStatus();
}

absl::StatusOr<bool> BackwardTables(std::span<const TableBackward> tables) {
  for (const TableBackward& table : tables) {
    const float limit = GradientLimit(table.step->gradient_factor(), table.gradient.scale);
    if (!AllWithin(table.gradient.gradients, limit)) return false;
  }
  for (const TableBackward& table : tables)
    HPS_RETURN_IF_ERROR(table.shard->Backward(*table.step, table.gradient));
  return true;
}

}  // namespace hps
