// Which gradients are too large for a step: their sums of a row could overflow, or make a square
// that does. A step with one of them, with NaN or an infinity changes no row.
#pragma once

#include <span>

#include "train/embedding_shard.h"

namespace hps {

// A row's sum of gradients is at most so many times the largest gradient of the batch. NaN or
// infinite if a weight of the batch is.
double GradientFactor(const BagBatch& batch);

// The largest magnitude of a row's sum of gradients, multiplied by the scale of the update.
inline constexpr double kScaledSumMax = 0x1p47;

// The largest gradient that is allowed: times `factor` it is finite, and times `scale`, too, at
// most kScaledSumMax. The squares of 2^32 such sums, which is the largest number of a row's
// updates, have a finite sum: AdaGrad's accumulator. Negative, so that none is allowed, if the
// factor or the scale is NaN or infinite.
float GradientLimit(double factor, float scale);

// Whether all magnitudes are at most `limit`; NaN is not.
bool AllWithin(std::span<const float> values, float limit);

}  // namespace hps
