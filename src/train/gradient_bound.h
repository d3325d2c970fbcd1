// How large the sum of a row's gradients can be, for the check that comes before every update: a
// step whose sums could overflow, or make a square that does, changes no row.
//
// The bound is that of the largest gradient, times all keys of the batch. It costs one look at the
// gradients, which the check for NaN and infinities needs in any case.
#pragma once

#include <span>

#include "train/embedding_shard.h"

namespace hps {

// The largest magnitude; infinite if a value is NaN or infinite.
float LargestMagnitude(std::span<const float> values);

// A row's sum of gradients is at most so many times the largest gradient. NaN or infinite if a
// weight of the batch is.
double GradientFactor(const BagBatch& batch);

// Whether rows may be updated when `sum` bounds every row's sum of gradients: it is finite, and
// with the scale at most 2^47. The square of such a sum fits into a float 2^32 times, which is the
// largest number of updates: AdaGrad's accumulator stays finite, too.
bool CanUpdate(double sum, float scale);

}  // namespace hps
