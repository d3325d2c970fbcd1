// The plan in the making: the values so far and the steps that make them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "network/onnx/graph.h"
#include "network/plan/layout.h"
#include "network/plan/plan.h"
#include "network/plan/plan_value.h"

namespace hps {

class PlanState {
 public:
  // Elements of a value per sample, and of a constant.
  static constexpr int64_t kElementsMax = int64_t{1} << 28;

  explicit PlanState(const OnnxGraph& graph);

  const OnnxGraph& graph() const { return graph_; }
  DensePlan& plan() { return plan_; }

  // REQUIRES: the value was defined (the reader checked the order of nodes).
  PlanValue& Value(std::string_view name);
  // The constant, or null.
  const PlanConstant* Constant(std::string_view name);
  // Errors: UNIMPLEMENTED if it has over kElementsMax elements.
  absl::Status Define(std::string_view name, PlanValue value);
  absl::Status DefineView(std::string_view name, const PlanView& view, OnnxElement element);
  absl::Status DefineConstant(std::string_view name, PlanConstant constant);
  // `to` is another name of `from`, with another type.
  absl::Status Forward(std::string_view from, std::string_view to, OnnxElement element);

  // How often nodes and outputs use the value.
  int Uses(std::string_view name) const;

  // Where the value is; emits what makes it if it is pending.
  absl::StatusOr<PlanView> View(std::string_view name);
  // The same for a value without a name.
  absl::StatusOr<PlanView> ViewOf(PlanValue& value);
  // As View, but never an input of the network, which only elementwise steps read.
  absl::StatusOr<PlanView> BufferView(std::string_view name);
  // Emits what writes the value to `out`.
  absl::Status EmitInto(PlanValue& value, const PlanView& out);
  // A copy of the view without gaps.
  absl::StatusOr<PlanView> Compact(const PlanView& view);
  void Copy(const PlanView& from, const PlanView& to);

  // Memory of a new buffer, with gaps behind the rows where these align them.
  absl::StatusOr<PlanView> NewBuffer(std::span<const int64_t> dims, bool is_compact = false);
  // Adds elements; returns where they begin.
  int64_t AddWeights(std::span<const float> values);
  LayoutCall CallOf(const OnnxNode& node);

 private:
  absl::Status EmitGemm(PendingGemm& gemm, const PlanView& out);
  absl::Status AppendGemm(PendingGemm& gemm, const PlanView& out);
  absl::Status EmitConcat(PendingConcat& concat, const PlanView& out);
  absl::Status EmitPairs(PendingPairs& pairs, const PlanView& out);
  absl::StatusOr<PlanView> WeightsView(const PlanConstant& constant);

  const OnnxGraph& graph_;
  DensePlan plan_;
  std::map<std::string_view, PlanValue> values_;
  std::map<std::string_view, int> uses_;
};

}  // namespace hps
