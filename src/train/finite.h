// Looks for NaN and infinities in gradients.
#pragma once

#include <span>

namespace hps {

// Cost: one read of the values, at the speed of memory.
bool AllFinite(std::span<const float> values);

}  // namespace hps
