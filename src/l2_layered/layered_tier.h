// Level 2 of two parts: a near part that can't block and has the level's budget, in front of a far
// part that can block and has none. With `kind = "memory+redis"` the near part is this process's
// memory and the far part is Redis.
//
// A fetch asks the near part first, and the far part for what it lacks. Rows of the far part are
// copied into the near one. Promotions and changes go to both. A table whose budget is too small
// for a near part has the far part alone.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tier/lossy_tier.h"

namespace hps {

// Tables may outlive the tier.
std::unique_ptr<LossyTier> MakeLayeredTier(std::shared_ptr<LossyTier> near,
                                           std::unique_ptr<LossyTier> far);

// Puts a near part before `far`, which is a table of the far level. Returns `far` itself if
// `bytes_max` is too small for a near part. Errors: as LossyTier::OpenTable.
absl::StatusOr<std::unique_ptr<LossyTable>> AddNearPart(LossyTier& near, const TableSpec& spec,
                                                        Incarnation incarnation, uint64_t bytes_max,
                                                        std::unique_ptr<LossyTable> far);

}  // namespace hps
