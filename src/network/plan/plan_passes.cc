#include "network/plan/plan_passes.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace hps {
namespace {

using Visit = std::function<void(PlanView&)>;

void VisitBuffer(DensePlan& plan, uint32_t buffer, const Visit& visit) {
  const Visit only = [&](PlanView& view) {
    if (view.memory == PlanMemory::kBuffer && view.index == buffer) visit(view);
  };
  for (PlanStep& step : plan.steps) ForEachView(step, only);
  for (PlanView& output : plan.output_views) only(output);
}

// Whether the entry copies a whole buffer, of one row per sample, into a part of another one, whose
// rows begin at multiples of 16 bytes.
bool CopiesBuffer(const DensePlan& plan, const ElementwiseEntry& entry) {
  const PlanView& from = entry.inputs.front();
  const PlanView& to = entry.output;
  for (size_t d = 1; d < from.dims.size(); ++d)
    if (from.dims[d] != 1 && from.strides[d] != to.strides[d]) return false;
  return entry.program.empty() && from.memory == PlanMemory::kBuffer && from.index != to.index &&
         from.gather_dim < 0 && from.offset == 0 &&
         from.ElementCount() == plan.buffers[from.index].row_elements && to.offset % 4 == 0 &&
         to.strides.front() % 4 == 0;
}

// Whether all views of a buffer may move into rows of another length.
bool MayMove(DensePlan& plan, uint32_t buffer) {
  if (plan.buffers[buffer].is_zero_padded) return false;
  bool may_move = true;
  VisitBuffer(plan, buffer, [&](const PlanView& view) {
    may_move = may_move && view.is_batched && view.dims.front() == 1;
  });
  for (const PlanView& output : plan.output_views) may_move = may_move && output.index != buffer;
  return may_move;
}

}  // namespace

void ElideCopies(DensePlan& plan) {
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    auto* const step = std::get_if<ElementwiseStep>(&plan.steps[s]);
    if (step == nullptr) continue;
    for (size_t e = 0; e < step->entries.size();) {
      const ElementwiseEntry& entry = step->entries[e];
      if (!CopiesBuffer(plan, entry) || !MayMove(plan, entry.inputs.front().index)) {
        ++e;
        continue;
      }
      const PlanView to = entry.output;
      const uint32_t from = entry.inputs.front().index;
      step->entries.erase(step->entries.begin() + static_cast<std::ptrdiff_t>(e));
      VisitBuffer(plan, from, [&to](PlanView& view) {
        view.index = to.index;
        view.offset += to.offset;
        view.strides.front() = to.strides.front();
      });
    }
  }
  std::erase_if(plan.steps, [](const PlanStep& step) {
    const auto* const elementwise = std::get_if<ElementwiseStep>(&step);
    return elementwise != nullptr && elementwise->entries.empty();
  });
}

void FuseNarrowProducts(DensePlan& plan) {
  for (size_t s = 0; s + 1 < plan.steps.size(); ++s) {
    auto* const gemm = std::get_if<GemmStep>(&plan.steps[s]);
    auto* const next = std::get_if<ElementwiseStep>(&plan.steps[s + 1]);
    if (gemm == nullptr || next == nullptr || gemm->n > kPlanNarrowMax || !gemm->program.empty() ||
        next->entries.front().program.size() > kPlanNarrowInstructionsMax ||
        next->entries.size() != 1 || gemm->out.memory != PlanMemory::kBuffer) {
      continue;
    }
    const ElementwiseEntry& entry = next->entries.front();
    const PlanView& to = entry.output;
    int uses = 0;
    VisitBuffer(plan, gemm->out.index, [&uses](PlanView&) { ++uses; });
    const bool is_its_result = entry.inputs.size() == 1 &&
                               entry.inputs[0].index == gemm->out.index &&
                               entry.inputs[0].memory == PlanMemory::kBuffer && uses == 2 &&
                               entry.inputs[0].dims.front() == gemm->out.dims.front() &&
                               entry.inputs[0].ElementCount() == gemm->out.ElementCount() &&
                               entry.inputs[0].offset == gemm->out.offset;
    if (!is_its_result || to.gather_dim >= 0 || entry.inputs[0].gather_dim >= 0) continue;
    // Rows of one element may have lost or gained dimensions of 1.
    if (gemm->n != 1 && (to.dims.size() != 2 || to.strides[1] != 1)) continue;
    gemm->program = entry.program;
    PlanView out = to;
    out.dims = gemm->out.dims;
    out.strides = {to.strides.front(), 1};
    gemm->out = out;
    plan.steps.erase(plan.steps.begin() + static_cast<std::ptrdiff_t>(s + 1));
  }
}

std::vector<bool> Float32Buffers(const DensePlan& plan) {
  std::vector<bool> stays(plan.buffers.size(), false);
  bool has_changed = true;
  const auto keep = [&](const PlanView& view) {
    if (view.memory != PlanMemory::kBuffer || stays[view.index]) return;
    stays[view.index] = true;
    has_changed = true;
  };
  const auto is_kept = [&](const PlanView& view) {
    return view.memory == PlanMemory::kBuffer && stays[view.index];
  };
  for (const PlanView& output : plan.output_views) keep(output);
  while (std::exchange(has_changed, false)) {
    for (const PlanStep& step : plan.steps) {
      if (const auto* const gemm = std::get_if<GemmStep>(&step)) {
        if (gemm->n > kPlanNarrowMax && is_kept(gemm->a)) keep(gemm->out);
      } else if (const auto* const batched = std::get_if<BatchedGemmStep>(&step)) {
        if (!is_kept(batched->a) && !is_kept(batched->b)) continue;
        keep(batched->a), keep(batched->b), keep(batched->out);
      }
    }
  }
  return stays;
}

}  // namespace hps
