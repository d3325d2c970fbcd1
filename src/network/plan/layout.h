// Operators that only move elements, as changes of a view: nothing is copied.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "network/onnx/graph.h"
#include "network/plan/plan.h"
#include "network/plan/plan_constant.h"

namespace hps {

// Identity, Dropout, Unsqueeze, Squeeze, Transpose, Slice, Reshape, Flatten, Expand, Gather.
bool IsLayoutOperator(std::string_view op);

struct LayoutCall {
  const OnnxNode& node;
  int64_t opset = 0;
  // By input of the node, from input 1 on; null: it has none.
  std::vector<const PlanConstant*> arguments{};
  std::vector<int32_t>& indices;  // of the plan; Gather adds its own
};

// The view of the node's output, or none if the elements of `in` must be made compact first.
// Errors: UNIMPLEMENTED (the result would depend on the batch elsewhere than in its first
// dimension, or an argument is not constant), INVALID_ARGUMENT (axes or sizes that don't fit).
absl::StatusOr<std::optional<PlanView>> ApplyLayout(const LayoutCall& call, const PlanView& in);

// Elements [begin, begin + step, ...) of a dimension.
PlanView SliceOf(const PlanView& in, size_t dim, int64_t begin, int64_t count, int64_t step);

// `in` with other dims of the same number of elements, or none if elements must move.
std::optional<PlanView> ReshapeOf(const PlanView& in, std::span<const int64_t> dims);

// `in` with dimensions in another order.
PlanView TransposeOf(const PlanView& in, std::span<const int64_t> order);

// `in` repeated to `dims` by the rules of broadcasting. None: it does not fit. A batched view fits
// batched dims only where its first dimension is their first one.
std::optional<PlanView> BroadcastOf(const PlanView& in, std::span<const int64_t> dims,
                                    bool is_batched);

// The axis counted from the front. Errors: INVALID_ARGUMENT.
absl::StatusOr<size_t> AxisOf(int64_t axis, size_t rank);

// Axes of a node: its argument, its attribute `axes`, or none. Errors: those of AxisOf, and
// UNIMPLEMENTED for an argument that is no constant.
absl::StatusOr<std::optional<std::vector<size_t>>> AxesOf(const LayoutCall& call, size_t argument,
                                                          size_t rank);

}  // namespace hps
