// Passes over a whole plan, before its buffers get their places.
#pragma once

#include <vector>

#include "network/plan/plan.h"

namespace hps {

// Lets the makers of a value write it where a concatenation wants it, also if others read it: a
// copy of a whole buffer into a part of another one goes away, and views of the first become views
// of the second.
void ElideCopies(DensePlan& plan);

// Takes operations on the result of a narrow matrix product into its step.
void FuseNarrowProducts(DensePlan& plan);

// By buffer: whether its elements have to stay float32 where the others have 16 bits. These are the
// network's outputs; and since a matrix product reads one type, and float32 becomes float32, what
// is made of them by matrix products.
std::vector<bool> Float32Buffers(const DensePlan& plan);

}  // namespace hps
