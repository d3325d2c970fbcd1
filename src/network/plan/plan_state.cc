#include "network/plan/plan_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

// cuBLASLt's fast kernels need rows that begin at multiples of 16 bytes; 32 also serve halves.
constexpr int64_t kRowAlignment = 8;
constexpr int64_t kWeightsAlignment = 64;
constexpr int64_t kUnalignedRowMax = 4;  // shorter rows are not worth a gap

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

PlanState::PlanState(const OnnxGraph& graph) : graph_(graph) {
  for (const OnnxNode& node : graph.nodes)
    for (const std::string_view input : node.inputs) ++uses_[input];
  for (const OnnxValue& output : graph.outputs) ++uses_[output.name];
  plan_.inputs = graph.inputs;
  plan_.outputs = graph.outputs;
  for (OnnxValue& output : plan_.outputs) output.element = OnnxElement::kFloat32;
}

PlanValue& PlanState::Value(std::string_view name) {
  auto found = values_.find(name);
  if (found == values_.end()) {
    const OnnxTensor* const tensor = graph_.Constant(name);
    HPS_CHECK(tensor != nullptr);
    PlanConstant constant = ConstantOf(*tensor);
    PlanValue value{.element = constant.element, .dims = constant.dims, .made = PlanConstant()};
    value.made = std::move(constant);
    found = values_.emplace(name, std::move(value)).first;
  }
  return found->second;
}

const PlanConstant* PlanState::Constant(std::string_view name) {
  return name.empty() ? nullptr : Value(name).As<PlanConstant>();
}

absl::Status PlanState::Define(std::string_view name, PlanValue value) {
  const int64_t count = PlanView{.dims = value.dims}.ElementCount();
  if (value.is_batched && count == 0) return absl::UnimplementedError("its output has no elements");
  if (count > kElementsMax)
    return absl::UnimplementedError(
        absl::StrCat("its output has over ", kElementsMax, " elements"));
  values_.insert_or_assign(name, std::move(value));
  return absl::OkStatus();
}

absl::Status PlanState::DefineView(std::string_view name, const PlanView& view,
                                   OnnxElement element) {
  return Define(
      name, {.element = element, .is_batched = view.is_batched, .dims = view.dims, .made = view});
}

absl::Status PlanState::DefineConstant(std::string_view name, PlanConstant constant) {
  PlanValue value{.element = constant.element, .dims = constant.dims, .made = PlanConstant()};
  value.made = std::move(constant);
  return Define(name, std::move(value));
}

absl::Status PlanState::Forward(std::string_view from, std::string_view to, OnnxElement element) {
  PlanValue& value = Value(from);
  if (Uses(from) == 1 || value.As<PlanConstant>() != nullptr) {
    PlanValue copy = value;
    copy.element = element;
    return Define(to, std::move(copy));
  }
  HPS_ASSIGN_OR_RETURN(const PlanView view, View(from));
  return DefineView(to, view, element);
}

int PlanState::Uses(std::string_view name) const {
  const auto found = uses_.find(name);
  return found == uses_.end() ? 0 : found->second;
}

absl::StatusOr<PlanView> PlanState::WeightsView(const PlanConstant& constant) {
  for (const BatchNumber& number : constant.integers) {
    if (number.per_sample != 0)
      return absl::UnimplementedError("it computes with a size that depends on the batch");
  }
  PlanView view = constant.View();
  view.offset = AddWeights(constant.Floats());
  return view;
}

absl::StatusOr<PlanView> PlanState::ViewOf(PlanValue& value) {
  if (const PlanView* const view = value.As<PlanView>()) return *view;
  if (const PlanConstant* const constant = value.As<PlanConstant>()) return WeightsView(*constant);
  if (const PendingTranspose* const transpose = value.As<PendingTranspose>()) {
    HPS_ASSIGN_OR_RETURN(const PlanView base, View(transpose->of));
    std::vector<int64_t> order;
    for (size_t d = 0; d < base.dims.size(); ++d) order.push_back(static_cast<int64_t>(d));
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    value.made = TransposeOf(base, order);
    return *value.As<PlanView>();
  }
  // Rows of a GEMM over more than two dimensions follow one another.
  const bool is_compact = value.As<PendingGemm>() != nullptr && value.dims.size() > 2;
  HPS_ASSIGN_OR_RETURN(const PlanView out, NewBuffer(value.dims, is_compact));
  HPS_RETURN_IF_ERROR(EmitInto(value, out));
  value.made = out;
  return out;
}

absl::StatusOr<PlanView> PlanState::View(std::string_view name) { return ViewOf(Value(name)); }

absl::StatusOr<PlanView> PlanState::BufferView(std::string_view name) {
  HPS_ASSIGN_OR_RETURN(const PlanView view, View(name));
  return view.memory == PlanMemory::kInput || view.gather_dim >= 0 ? Compact(view) : view;
}

absl::StatusOr<PlanView> PlanState::Compact(const PlanView& view) {
  HPS_ASSIGN_OR_RETURN(const PlanView out, NewBuffer(view.dims, true));
  Copy(view, out);
  return out;
}

void PlanState::Copy(const PlanView& from, const PlanView& to) {
  plan_.steps.push_back(
      ElementwiseStep{.entries = {{.inputs = {from}, .program = {}, .output = to}}});
}

absl::StatusOr<PlanView> PlanState::NewBuffer(std::span<const int64_t> dims, bool is_compact) {
  PlanView view{.memory = PlanMemory::kBuffer,
                .index = static_cast<uint32_t>(plan_.buffers.size()),
                .is_batched = true,
                .dims = {dims.begin(), dims.end()},
                .strides = CompactStrides(dims)};
  if (dims.empty() || view.ElementCount() == 0)
    return absl::UnimplementedError("a value has no elements");
  if (view.ElementCount() > kElementsMax)
    return absl::UnimplementedError(absl::StrCat("a value has over ", kElementsMax, " elements"));
  const int64_t used = view.ElementCount() / dims.front();
  int64_t row = used;
  if (!is_compact && row >= kUnalignedRowMax) row = RoundUp(row, kRowAlignment);
  view.strides.front() = row;
  plan_.buffers.push_back({.sample_elements = row * dims.front(), .row_elements = used});
  return view;
}

int64_t PlanState::AddWeights(std::span<const float> values) {
  const auto begin = static_cast<int64_t>(plan_.weights.size());
  plan_.weights.insert(plan_.weights.end(), values.begin(), values.end());
  const int64_t end = RoundUp(begin + static_cast<int64_t>(values.size()), kWeightsAlignment);
  plan_.weights.resize(static_cast<size_t>(end), 0.0F);
  return begin;
}

LayoutCall PlanState::CallOf(const OnnxNode& node) {
  LayoutCall call{.node = node, .opset = graph_.opset, .indices = plan_.indices};
  call.arguments.push_back(nullptr);
  for (size_t i = 1; i < node.inputs.size(); ++i)
    call.arguments.push_back(Constant(node.inputs[i]));
  return call;
}

absl::Status PlanState::EmitInto(PlanValue& value, const PlanView& out) {
  if (PendingElementwise* const expression = value.As<PendingElementwise>()) {
    plan_.steps.push_back(ElementwiseStep{
        .entries = {
            {.inputs = expression->inputs, .program = expression->program, .output = out}}});
    return absl::OkStatus();
  }
  if (PendingGemm* const gemm = value.As<PendingGemm>()) return EmitGemm(*gemm, out);
  if (PendingConcat* const concat = value.As<PendingConcat>()) return EmitConcat(*concat, out);
  if (PendingPairs* const pairs = value.As<PendingPairs>()) return EmitPairs(*pairs, out);
  HPS_ASSIGN_OR_RETURN(const PlanView from, ViewOf(value));
  const std::optional<PlanView> fitting = BroadcastOf(from, out.dims, out.is_batched);
  if (!fitting.has_value()) return absl::UnimplementedError("its batch has another place");
  Copy(*fitting, out);
  return absl::OkStatus();
}

absl::Status PlanState::EmitGemm(PendingGemm& gemm, const PlanView& out) {
  const std::optional<PlanView> rows = ReshapeOf(out, std::vector{gemm.a.dims.front(), gemm.n});
  // Wide rows that are not aligned would take cuBLASLt's slow kernels.
  constexpr int64_t kWide = 64;
  const bool is_direct =
      rows.has_value() && rows->strides.back() == 1 &&
      (gemm.n < kWide || (rows->offset % 4 == 0 && rows->strides.front() % 4 == 0));
  if (!is_direct) {
    HPS_ASSIGN_OR_RETURN(const PlanView own,
                         NewBuffer(std::vector{gemm.a.dims.front(), gemm.n}, out.dims.size() > 2));
    HPS_RETURN_IF_ERROR(AppendGemm(gemm, own));
    Copy(*ReshapeOf(own, out.dims), out);
    return absl::OkStatus();
  }
  return AppendGemm(gemm, *rows);
}

absl::Status PlanState::AppendGemm(PendingGemm& gemm, const PlanView& out) {
  const int64_t k = gemm.a.dims.back();
  GemmStep step{.a = gemm.a, .out = out, .k = k, .n = gemm.n, .has_relu = gemm.has_relu};
  const int64_t padded = RoundUp(k, kRowAlignment);
  PlanBuffer& source = plan_.buffers[gemm.a.index];
  if (padded != k && gemm.a.offset == 0 && gemm.a.strides.front() == padded &&
      source.row_elements == k) {
    source.is_zero_padded = true;
    step.k = padded;
  }
  std::vector<float> weights;
  weights.reserve(static_cast<size_t>(gemm.n * step.k));
  for (int64_t row = 0; row < gemm.n; ++row) {
    const auto begin = gemm.weights.begin() + row * k;
    weights.insert(weights.end(), begin, begin + k);
    weights.resize(static_cast<size_t>((row + 1) * step.k), 0.0F);
  }
  step.weights = AddWeights(weights);
  if (!gemm.bias.empty()) step.bias = AddWeights(gemm.bias);
  plan_.steps.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status PlanState::EmitConcat(PendingConcat& concat, const PlanView& out) {
  ElementwiseStep copies;
  int64_t begin = 0;
  for (PendingConcat::Part& part : concat.parts) {
    PlanView from = part.view;
    int64_t size = 0;
    if (!part.name.empty()) {
      PlanValue& value = Value(part.name);
      size = value.dims[concat.axis];
      const PlanView slice = SliceOf(out, concat.axis, begin, size, 1);
      const bool is_own = Uses(part.name) == 1 && value.is_batched &&
                          value.As<PlanView>() == nullptr &&
                          value.As<PendingTranspose>() == nullptr;
      if (is_own) {
        HPS_RETURN_IF_ERROR(EmitInto(value, slice));
        value.made = slice;
        begin += size;
        continue;
      }
      HPS_ASSIGN_OR_RETURN(from, ViewOf(value));
    } else {
      size = from.dims[concat.axis];
    }
    const PlanView slice = SliceOf(out, concat.axis, begin, size, 1);
    const std::optional<PlanView> fitting = BroadcastOf(from, slice.dims, true);
    if (!fitting.has_value())
      return absl::UnimplementedError("a part does not depend on the batch");
    if (size > 0) copies.entries.push_back({.inputs = {*fitting}, .program = {}, .output = slice});
    begin += size;
  }
  if (!copies.entries.empty()) plan_.steps.push_back(std::move(copies));
  return absl::OkStatus();
}

absl::Status PlanState::EmitPairs(PendingPairs& pairs, const PlanView& out) {
  const auto count = static_cast<int64_t>(pairs.selected.size());
  const std::optional<PlanView> row = ReshapeOf(out, std::vector{int64_t{1}, count});
  if (!row.has_value()) {
    HPS_ASSIGN_OR_RETURN(const PlanView own, NewBuffer(std::vector{int64_t{1}, count}));
    HPS_RETURN_IF_ERROR(EmitPairs(pairs, own));
    Copy(*ReshapeOf(own, out.dims), out);
    return absl::OkStatus();
  }
  PairsStep step{.parts = pairs.parts,
                 .rows = pairs.rows,
                 .width = pairs.width,
                 .selected_begin = static_cast<int64_t>(plan_.indices.size()),
                 .selected_count = count,
                 .out = *row};
  plan_.indices.insert(plan_.indices.end(), pairs.selected.begin(), pairs.selected.end());
  plan_.steps.push_back(std::move(step));
  return absl::OkStatus();
}

}  // namespace hps
