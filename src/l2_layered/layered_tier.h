// Level 2 of two parts: a near part that can't block and has the level's budget, in front of a far
// part that can block and has none. With `kind = "memory+redis"` the near part is this process's
// memory and the far part is Redis.
//
// A fetch asks the near part first, and the far part for what it lacks. Rows of the far part are
// copied into the near one. Promotions and changes go to both. A table whose budget is too small
// for a near part has the far part alone.
#pragma once

#include <memory>

#include "tier/lossy_tier.h"

namespace hps {

// Tables may outlive the tier.
std::unique_ptr<LossyTier> MakeLayeredTier(std::unique_ptr<LossyTier> near,
                                           std::unique_ptr<LossyTier> far);

}  // namespace hps
