// Passes over a whole plan, before its buffers get their places.
#pragma once

#include "dense_plan/plan.h"

namespace hps {

// Lets the makers of a value write it where a concatenation wants it, also if others read it: a
// copy of a whole buffer into a part of another one goes away, and views of the first become views
// of the second.
void ElideCopies(DensePlan& plan);

// Takes operations on the result of a narrow matrix product into its step.
void FuseNarrowProducts(DensePlan& plan);

}  // namespace hps
