#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "network/plan/lower.h"

namespace hps {
namespace {

constexpr int64_t kPairsRowsMax = 64;
constexpr int64_t kPairsElementsMax = 12288;  // of a sample's features: they lie in shared memory

// [k, n] or, transposed, [n, k], as [n, k].
std::vector<float> TransposedWeights(const PlanConstant& constant, bool is_transposed) {
  if (is_transposed) return constant.floats;
  const auto k = static_cast<size_t>(constant.dims[constant.dims.size() - 2]);
  const auto n = static_cast<size_t>(constant.dims.back());
  std::vector<float> weights(k * n);
  for (size_t row = 0; row < k; ++row)
    for (size_t column = 0; column < n; ++column)
      weights[column * k + row] = constant.floats[row * n + column];
  return weights;
}

// All dimensions but the last as rows, in memory that a GEMM can read.
absl::StatusOr<PlanView> RowsOf(PlanState& state, std::string_view name) {
  HPS_ASSIGN_OR_RETURN(PlanView view, state.BufferView(name));
  const int64_t width = view.dims.back();
  const std::vector<int64_t> dims = {width == 0 ? 0 : view.ElementCount() / width, width};
  std::optional<PlanView> rows = ReshapeOf(view, dims);
  if (!rows.has_value() || rows->strides[1] != 1 || rows->strides[0] < width) {
    HPS_ASSIGN_OR_RETURN(view, state.Compact(view));
    rows = ReshapeOf(view, dims);
  }
  if (rows->offset % 4 == 0) return *rows;
  return state.Compact(*rows);
}

absl::Status DefineGemm(PlanState& state, const OnnxNode& node, PendingGemm gemm) {
  PlanValue value{
      .is_batched = true, .dims = state.Value(node.inputs[0]).dims, .made = PlanConstant()};
  value.dims.back() = gemm.n;
  value.made = std::move(gemm);
  return state.Define(node.outputs.front(), std::move(value));
}

// A constant that is one row, repeated to `n` elements.
std::optional<std::vector<float>> RowOf(const PlanConstant& constant, int64_t n) {
  if (!constant.IsFloat()) return std::nullopt;
  if (constant.ElementCount() == 1)
    return std::vector<float>(static_cast<size_t>(n), constant.floats[0]);
  if (constant.dims.empty() || constant.dims.back() != n || constant.ElementCount() != n)
    return std::nullopt;
  return constant.floats;
}

absl::Status MatMulByConstant(PlanState& state, const OnnxNode& node, const PlanConstant& b) {
  if (!b.IsFloat() || b.dims.size() < 2)
    return absl::UnimplementedError("its second input is not a matrix of floats");
  for (size_t d = 0; d + 2 < b.dims.size(); ++d) {
    if (b.dims[d] != 1) return absl::UnimplementedError("its constant has a batch of matrices");
  }
  const PlanValue& a = state.Value(node.inputs[0]);
  if (a.dims.size() < 2 || b.dims.size() > a.dims.size() ||
      a.dims.back() != b.dims[b.dims.size() - 2]) {
    return absl::InvalidArgumentError("the shapes of its inputs do not fit");
  }
  PendingGemm gemm{.a = {}, .weights = TransposedWeights(b, false), .n = b.dims.back()};
  HPS_ASSIGN_OR_RETURN(gemm.a, RowsOf(state, node.inputs[0]));
  return DefineGemm(state, node, std::move(gemm));
}

// Features times the same features, transposed: parts of the features, or none.
absl::StatusOr<std::vector<PlanView>> PairParts(PlanState& state, const OnnxNode& node) {
  PlanValue& a = state.Value(node.inputs[0]);
  PlanValue& b = state.Value(node.inputs[1]);
  std::vector<PlanView> parts;
  if (a.dims.size() != 3 || a.dims[0] != 1 || a.dims[1] < 2 || a.dims[1] > kPairsRowsMax ||
      a.dims[1] * (a.dims[2] + 4) > kPairsElementsMax || !a.is_batched) {
    return parts;
  }
  PendingConcat* const concat = a.As<PendingConcat>();
  const PendingTranspose* const transpose = b.As<PendingTranspose>();
  if (concat != nullptr && concat->axis == 1 && transpose != nullptr &&
      transpose->of == node.inputs[0]) {
    for (const PendingConcat::Part& part : concat->parts) {
      PlanView view = part.view;
      if (!part.name.empty()) {
        HPS_ASSIGN_OR_RETURN(view, state.View(part.name));
      }
      parts.push_back(view);
    }
  } else if (const PlanView* const view = a.As<PlanView>();
             view != nullptr && b.As<PlanView>() != nullptr &&
             *b.As<PlanView>() == TransposeOf(*view, std::vector<int64_t>{0, 2, 1})) {
    parts.push_back(*view);
  }
  for (const PlanView& part : parts) {
    const bool is_simple = part.gather_dim < 0 && part.is_batched && part.strides[2] == 1 &&
                           part.memory != PlanMemory::kWeights &&
                           (part.memory != PlanMemory::kInput ||
                            state.plan().inputs[part.index].element == OnnxElement::kFloat32);
    if (!is_simple) return std::vector<PlanView>();
  }
  return parts;
}

absl::Status DefinePairs(PlanState& state, const OnnxNode& node, std::vector<PlanView> parts) {
  const std::vector<int64_t>& dims = state.Value(node.inputs[0]).dims;
  PendingPairs pairs{.parts = std::move(parts), .rows = dims[1], .width = dims[2], .selected = {}};
  for (int32_t i = 0; i < dims[1] * dims[1]; ++i) pairs.selected.push_back(i);
  PlanValue value{.is_batched = true, .dims = {1, dims[1], dims[1]}, .made = PlanConstant()};
  value.made = std::move(pairs);
  return state.Define(node.outputs.front(), std::move(value));
}

// [batches, rows, columns], all but the last two dimensions together.
absl::StatusOr<PlanView> MatricesOf(PlanState& state, std::string_view name) {
  HPS_ASSIGN_OR_RETURN(PlanView view, state.BufferView(name));
  const size_t rank = view.dims.size();
  const auto fits = [](const std::optional<PlanView>& of) {
    return of.has_value() && (of->strides[2] == 1 || of->strides[1] == 1);
  };
  const auto merged = [rank](const PlanView& of) -> std::optional<PlanView> {
    std::vector<int64_t> dims = {1, of.dims[rank - 2], of.dims[rank - 1]};
    for (size_t d = 0; d + 2 < rank; ++d) dims[0] *= of.dims[d];
    if (rank == 3) return of;
    PlanView out = of;
    // The outer dimensions must follow one another; the inner two may have any strides.
    for (size_t d = 1; d + 2 < rank; ++d)
      if (of.strides[d - 1] != of.strides[d] * of.dims[d]) return std::nullopt;
    out.dims = dims;
    out.strides = {of.strides[rank - 3], of.strides[rank - 2], of.strides[rank - 1]};
    return out;
  };
  std::optional<PlanView> matrices = merged(view);
  if (!fits(matrices)) {
    HPS_ASSIGN_OR_RETURN(view, state.Compact(view));
    matrices = merged(view);
  }
  // Dimensions of 1 have strides that mean nothing.
  if (matrices->dims[2] == 1 && matrices->strides[1] == 1) matrices->strides[2] = matrices->dims[1];
  return *matrices;
}

absl::Status MatMulBatched(PlanState& state, const OnnxNode& node) {
  const PlanValue& a = state.Value(node.inputs[0]);
  const PlanValue& b = state.Value(node.inputs[1]);
  const size_t rank = a.dims.size();
  if (!a.is_batched || !b.is_batched)
    return absl::UnimplementedError("its first input does not depend on the batch");
  if (rank < 3 || b.dims.size() != rank ||
      !std::equal(a.dims.begin(), a.dims.end() - 2, b.dims.begin())) {
    return absl::UnimplementedError("its inputs are not the same number of matrices");
  }
  if (a.dims[rank - 1] != b.dims[rank - 2])
    return absl::InvalidArgumentError("the shapes of its inputs do not fit");
  std::vector<int64_t> dims = a.dims;
  dims.back() = b.dims.back();
  BatchedGemmStep step;
  HPS_ASSIGN_OR_RETURN(step.a, MatricesOf(state, node.inputs[0]));
  HPS_ASSIGN_OR_RETURN(step.b, MatricesOf(state, node.inputs[1]));
  HPS_ASSIGN_OR_RETURN(const PlanView out, state.NewBuffer(dims, true));
  step.out = *ReshapeOf(out, std::vector{step.a.dims[0], dims[rank - 2], dims[rank - 1]});
  state.plan().steps.push_back(std::move(step));
  return state.DefineView(node.outputs.front(), out, a.element);
}

}  // namespace

absl::Status LowerGemm(PlanState& state, const OnnxNode& node) {
  const PlanConstant* const b = node.inputs.size() < 2 ? nullptr : state.Constant(node.inputs[1]);
  if (b == nullptr || !b->IsFloat() || b->dims.size() != 2)
    return absl::UnimplementedError("its second input is not a constant matrix");
  if (node.Integer("transA", 0) != 0) return absl::UnimplementedError("its batch is transposed");
  const bool is_transposed = node.Integer("transB", 0) != 0;
  const PlanValue& a = state.Value(node.inputs[0]);
  if (a.dims.size() != 2 || a.dims[1] != b->dims[is_transposed ? 1 : 0])
    return absl::InvalidArgumentError("the shapes of its inputs do not fit");
  PendingGemm gemm{.a = {},
                   .weights = TransposedWeights(*b, is_transposed),
                   .n = b->dims[is_transposed ? 0 : 1]};
  for (float& weight : gemm.weights) weight *= node.Float("alpha", 1.0F);
  if (node.inputs.size() > 2 && !node.inputs[2].empty()) {
    const PlanConstant* const c = state.Constant(node.inputs[2]);
    if (c == nullptr) return absl::UnimplementedError("its third input is not constant");
    const std::optional<std::vector<float>> bias = RowOf(*c, gemm.n);
    if (!bias.has_value()) return absl::UnimplementedError("its third input is not a row");
    gemm.bias = *bias;
    for (float& value : gemm.bias) value *= node.Float("beta", 1.0F);
  }
  HPS_ASSIGN_OR_RETURN(gemm.a, RowsOf(state, node.inputs[0]));
  return DefineGemm(state, node, std::move(gemm));
}

absl::Status LowerMatMul(PlanState& state, const OnnxNode& node) {
  if (node.inputs.size() != 2) return absl::InvalidArgumentError("it has not two inputs");
  if (const PlanConstant* const b = state.Constant(node.inputs[1]))
    return MatMulByConstant(state, node, *b);
  HPS_ASSIGN_OR_RETURN(std::vector<PlanView> parts, PairParts(state, node));
  if (!parts.empty()) return DefinePairs(state, node, std::move(parts));
  return MatMulBatched(state, node);
}

absl::StatusOr<bool> TakeIntoGemm(PlanState& state, const OnnxNode& node) {
  if (node.op == "Relu") {
    PendingGemm* const gemm = state.Value(node.inputs[0]).As<PendingGemm>();
    if (gemm == nullptr || gemm->has_relu || state.Uses(node.inputs[0]) != 1) return false;
    gemm->has_relu = true;
    HPS_RETURN_IF_ERROR(
        state.Forward(node.inputs[0], node.outputs[0], state.Value(node.inputs[0]).element));
    return true;
  }
  if (node.op != "Add" || node.inputs.size() != 2) return false;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    PlanValue& value = state.Value(node.inputs[i]);
    PendingGemm* const gemm = value.As<PendingGemm>();
    const PlanConstant* const constant = state.Constant(node.inputs[1 - i]);
    if (gemm == nullptr || constant == nullptr || gemm->has_relu || !gemm->bias.empty() ||
        state.Uses(node.inputs[i]) != 1 || constant->dims.size() > value.dims.size()) {
      continue;
    }
    const std::optional<std::vector<float>> bias = RowOf(*constant, gemm->n);
    if (!bias.has_value()) continue;
    gemm->bias = *bias;
    HPS_RETURN_IF_ERROR(state.Forward(node.inputs[i], node.outputs[0], value.element));
    return true;
  }
  return false;
}

}  // namespace hps
