// Passes over a whole plan, before its buffers get their places.
#pragma once

#include <variant>
#include <vector>

#include "network/plan/plan.h"

namespace hps {

// Calls `visit` for each view of a step, which may be const.
template <typename Step, typename Visit>
void ForEachView(Step& step, const Visit& visit) {
  if (auto* const elementwise = std::get_if<ElementwiseStep>(&step)) {
    for (auto& entry : elementwise->entries) {
      for (auto& input : entry.inputs) visit(input);
      visit(entry.output);
    }
  } else if (auto* const gemm = std::get_if<GemmStep>(&step)) {
    visit(gemm->a), visit(gemm->out);
  } else if (auto* const batched = std::get_if<BatchedGemmStep>(&step)) {
    visit(batched->a), visit(batched->b), visit(batched->out);
  } else if (auto* const pairs = std::get_if<PairsStep>(&step)) {
    for (auto& part : pairs->parts) visit(part);
    visit(pairs->out);
  } else if (auto* const reduce = std::get_if<ReduceStep>(&step)) {
    visit(reduce->in), visit(reduce->out);
  } else if (auto* const normalize = std::get_if<NormalizeStep>(&step)) {
    visit(normalize->in), visit(normalize->out);
  }
}

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
