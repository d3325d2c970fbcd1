// One call for all tables of a step, of any widths.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/embedding_shard.h"

namespace hps {

struct TableForward {
  EmbeddingShard* shard = nullptr;
  BagBatch batch{};
  StepIndex* step = nullptr;
  std::span<float> out{};
};

struct TableBackward {
  EmbeddingShard* shard = nullptr;
  StepIndex* step = nullptr;
  StepGradient gradient{};
};

// Errors: the first of the shards'; tables after it are not asked.
absl::Status ForwardTables(std::span<const TableForward> tables);

// False, and no row of any table has changed, if a gradient is NaN or infinite, or too large
// (gradient_bound.h).
// Errors: the first of the shards'.
absl::StatusOr<bool> BackwardTables(std::span<const TableBackward> tables);

}  // namespace hps
