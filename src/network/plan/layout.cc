#include "network/plan/layout.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/macros.h"

namespace hps {
namespace {

using MaybeView = absl::StatusOr<std::optional<PlanView>>;

absl::Status BatchMoves() {
  return absl::UnimplementedError("the batch would not stay the first dimension");
}

absl::StatusOr<std::vector<int64_t>> IntegerArgument(const LayoutCall& call, size_t i) {
  if (i >= call.arguments.size() || call.arguments[i] == nullptr)
    return absl::UnimplementedError(absl::StrCat("its input ", i, " is not constant"));
  std::optional<std::vector<int64_t>> values = call.arguments[i]->Integers();
  if (!values.has_value())
    return absl::UnimplementedError(absl::StrCat("its input ", i, " depends on the batch"));
  return *std::move(values);
}

bool HasArgument(const LayoutCall& call, size_t i) {
  return i < call.arguments.size() && call.arguments[i] != nullptr;
}

MaybeView Unsqueeze(const LayoutCall& call, const PlanView& in) {
  std::vector<int64_t> given;
  if (call.node.inputs.size() > 1) {
    HPS_ASSIGN_OR_RETURN(given, IntegerArgument(call, 1));
  } else if (const auto found = call.node.integers.find("axes");
             found != call.node.integers.end()) {
    given = found->second;
  }
  std::set<size_t> axes;
  for (const int64_t axis : given) {
    HPS_ASSIGN_OR_RETURN(const size_t at, AxisOf(axis, in.dims.size() + given.size()));
    axes.insert(at);
  }
  if (axes.size() != given.size()) return absl::InvalidArgumentError("an axis occurs twice");
  if (in.is_batched && axes.contains(0)) return BatchMoves();
  PlanView out = in;
  for (const size_t axis : axes) {  // ascending
    const auto at = static_cast<std::ptrdiff_t>(axis);
    out.dims.insert(out.dims.begin() + at, 1);
    out.strides.insert(out.strides.begin() + at, 0);
    if (out.gather_dim >= static_cast<int>(axis)) ++out.gather_dim;
  }
  return out;
}

MaybeView Squeeze(const LayoutCall& call, const PlanView& in) {
  HPS_ASSIGN_OR_RETURN(const auto given, AxesOf(call, 1, in.dims.size()));
  std::vector<size_t> axes;
  if (given.has_value()) {
    axes = *given;
  } else {
    for (size_t d = in.is_batched ? 1 : 0; d < in.dims.size(); ++d)
      if (in.dims[d] == 1) axes.push_back(d);
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  PlanView out = in;
  for (size_t i = axes.size(); i-- > 0;) {
    const size_t axis = axes[i];
    if (axis == 0 && in.is_batched) return BatchMoves();
    if (in.dims[axis] != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", axis, " is ", in.dims[axis], " and can't be squeezed"));
    }
    if (out.gather_dim == static_cast<int>(axis)) return std::nullopt;
    if (out.gather_dim > static_cast<int>(axis)) --out.gather_dim;
    out.dims.erase(out.dims.begin() + static_cast<std::ptrdiff_t>(axis));
    out.strides.erase(out.strides.begin() + static_cast<std::ptrdiff_t>(axis));
  }
  return out;
}

MaybeView Transpose(const LayoutCall& call, const PlanView& in) {
  std::vector<int64_t> order;
  if (const auto found = call.node.integers.find("perm"); found != call.node.integers.end()) {
    order = found->second;
  } else {
    for (size_t d = in.dims.size(); d-- > 0;) order.push_back(static_cast<int64_t>(d));
  }
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t d = 0; d < sorted.size(); ++d) {
    if (sorted[d] != static_cast<int64_t>(d) || order.size() != in.dims.size())
      return absl::InvalidArgumentError("its 'perm' is not an order of the dimensions");
  }
  if (in.is_batched && order.front() != 0) return BatchMoves();
  return TransposeOf(in, order);
}

struct Range {
  int64_t begin = 0;
  int64_t count = 0;
};

// By ONNX's rules: negative values count from the end; then both are clamped.
Range ClampedRange(int64_t begin, int64_t end, int64_t step, int64_t dim) {
  const auto clamped = [&](int64_t value, int64_t low, int64_t high) {
    if (value < 0) value = value < -dim ? low : value + dim;
    return std::clamp(value, low, high);
  };
  if (step > 0) {
    const int64_t first = clamped(begin, 0, dim);
    const int64_t last = clamped(end, 0, dim);
    return {first, last > first ? (last - first - 1) / step + 1 : 0};
  }
  const int64_t first = clamped(begin, 0, dim - 1);
  const int64_t last = end < -dim ? -1 : clamped(end, -1, dim - 1);
  return {first, first > last ? (first - last - 1) / -step + 1 : 0};
}

MaybeView Slice(const LayoutCall& call, const PlanView& in) {
  std::vector<int64_t> begins, ends, axes, steps;
  if (call.opset < 10) {
    const auto attribute = [&](const char* name) {
      const auto found = call.node.integers.find(name);
      return found == call.node.integers.end() ? std::vector<int64_t>() : found->second;
    };
    begins = attribute("starts"), ends = attribute("ends"), axes = attribute("axes");
  } else {
    HPS_ASSIGN_OR_RETURN(begins, IntegerArgument(call, 1));
    HPS_ASSIGN_OR_RETURN(ends, IntegerArgument(call, 2));
    if (HasArgument(call, 3)) {
      HPS_ASSIGN_OR_RETURN(axes, IntegerArgument(call, 3));
    }
    if (HasArgument(call, 4)) {
      HPS_ASSIGN_OR_RETURN(steps, IntegerArgument(call, 4));
    }
  }
  if (axes.empty())
    for (size_t i = 0; i < begins.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (steps.empty()) steps.assign(begins.size(), 1);
  if (ends.size() != begins.size() || axes.size() != begins.size() || steps.size() != axes.size())
    return absl::InvalidArgumentError("its starts, ends, axes and steps differ in number");
  PlanView out = in;
  for (size_t i = 0; i < axes.size(); ++i) {
    HPS_ASSIGN_OR_RETURN(const size_t axis, AxisOf(axes[i], in.dims.size()));
    const int64_t step = steps[i];
    if (step == 0 || step == std::numeric_limits<int64_t>::min())
      return absl::InvalidArgumentError("a step is 0");
    if (axis == 0 && in.is_batched) {
      if (begins[i] != 0 || ends[i] != std::numeric_limits<int64_t>::max() || step != 1)
        return absl::UnimplementedError("it takes a part of the batch");
      continue;
    }
    const Range range = ClampedRange(begins[i], ends[i], step, out.dims[axis]);
    out = SliceOf(out, axis, range.begin, range.count, step);
  }
  return out;
}

MaybeView Reshape(const LayoutCall& call, const PlanView& in) {
  if (!HasArgument(call, 1) || call.arguments[1]->IsFloat())
    return absl::UnimplementedError("its shape is not constant");
  const std::vector<BatchNumber>& wanted = call.arguments[1]->integers;
  const bool copies_zero = call.node.Integer("allowzero", 0) == 0;
  std::vector<int64_t> dims;
  std::optional<size_t> open;
  bool starts_with_batch = false;
  for (size_t d = 0; d < wanted.size(); ++d) {
    const auto [fixed, per_sample] = wanted[d];
    int64_t dim = fixed;
    if (per_sample != 0) {
      if (d != 0 || fixed != 0 || !in.is_batched) return BatchMoves();
      dim = per_sample;
      starts_with_batch = true;
    } else if (fixed == 0 && copies_zero) {
      if (d >= in.dims.size()) return absl::InvalidArgumentError("its shape does not fit");
      dim = in.dims[d];
      starts_with_batch |= d == 0;
    } else if (fixed == -1) {
      if (open.has_value()) return absl::InvalidArgumentError("two sizes are -1");
      open = d;
      dim = 1;
      starts_with_batch |= d == 0;
    }
    if (dim < 0) return absl::InvalidArgumentError("a size is negative");
    dims.push_back(dim);
  }
  if (in.is_batched && !starts_with_batch)
    return absl::UnimplementedError("its shape has a fixed number of samples");
  const int64_t count = in.ElementCount();
  if (open.has_value())
    dims[*open] = count / std::max<int64_t>(PlanView{.dims = dims}.ElementCount(), 1);
  if (PlanView{.dims = dims}.ElementCount() != count || (in.is_batched && dims.front() == 0))
    return absl::InvalidArgumentError("its shape does not fit");
  return ReshapeOf(in, dims);
}

MaybeView Flatten(const LayoutCall& call, const PlanView& in) {
  const auto rank = static_cast<int64_t>(in.dims.size());
  int64_t axis = call.node.Integer("axis", 1);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis > rank) return absl::InvalidArgumentError("its axis does not exist");
  if (in.is_batched && axis == 0) return BatchMoves();
  std::vector<int64_t> dims(2, 1);
  for (int64_t d = 0; d < rank; ++d) dims[d < axis ? 0 : 1] *= in.dims[static_cast<size_t>(d)];
  return ReshapeOf(in, dims);
}

MaybeView Expand(const LayoutCall& call, const PlanView& in) {
  if (!HasArgument(call, 1) || call.arguments[1]->IsFloat())
    return absl::UnimplementedError("its shape is not constant");
  const std::vector<BatchNumber>& wanted = call.arguments[1]->integers;
  const size_t rank = std::max(wanted.size(), in.dims.size());
  std::vector<int64_t> dims(rank, 1);
  bool is_batched = in.is_batched;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const size_t d = rank - wanted.size() + i;
    dims[d] = wanted[i].fixed;
    if (wanted[i].per_sample == 0) continue;
    if (d != 0 || wanted[i].fixed != 0) return BatchMoves();
    dims[d] = wanted[i].per_sample;
    is_batched = true;
  }
  for (size_t i = 0; i < in.dims.size(); ++i) {
    const size_t d = rank - in.dims.size() + i;
    if (d == 0 && in.is_batched && dims[d] == 1) dims[d] = in.dims[i];
    if (dims[d] == 1) dims[d] = in.dims[i];
  }
  std::optional<PlanView> out = BroadcastOf(in, dims, is_batched);
  if (!out.has_value()) return absl::InvalidArgumentError("its shape does not fit");
  return out;
}

MaybeView Gather(const LayoutCall& call, const PlanView& in) {
  HPS_ASSIGN_OR_RETURN(const size_t axis, AxisOf(call.node.Integer("axis", 0), in.dims.size()));
  HPS_ASSIGN_OR_RETURN(const std::vector<int64_t> picked, IntegerArgument(call, 1));
  if (axis == 0 && in.is_batched) return absl::UnimplementedError("it picks samples of the batch");
  if (in.gather_dim >= 0) return std::nullopt;
  const std::vector<int64_t>& index_dims = call.arguments[1]->dims;
  const int64_t size = in.dims[axis];
  PlanView out = in;
  if (index_dims.empty()) {
    const int64_t index = picked.front() < 0 ? picked.front() + size : picked.front();
    if (index < 0 || index >= size) return absl::InvalidArgumentError("an index does not exist");
    out = SliceOf(in, axis, index, 1, 1);
    out.dims.erase(out.dims.begin() + static_cast<std::ptrdiff_t>(axis));
    out.strides.erase(out.strides.begin() + static_cast<std::ptrdiff_t>(axis));
    return out;
  }
  if (index_dims.size() != 1)
    return absl::UnimplementedError("its indices have more than one dimension");
  out.dims[axis] = index_dims.front();
  out.gather_dim = static_cast<int>(axis);
  out.gather_begin = static_cast<int64_t>(call.indices.size());
  for (const int64_t given : picked) {
    const int64_t index = given < 0 ? given + size : given;
    if (index < 0 || index >= size || index > std::numeric_limits<int32_t>::max())
      return absl::InvalidArgumentError("an index does not exist");
    call.indices.push_back(static_cast<int32_t>(index));
  }
  return out;
}

}  // namespace

bool IsLayoutOperator(std::string_view op) {
  static constexpr std::string_view kAll[] = {"Identity",  "Dropout", "Unsqueeze", "Squeeze",
                                              "Transpose", "Slice",   "Reshape",   "Flatten",
                                              "Expand",    "Gather"};
  return std::find(std::begin(kAll), std::end(kAll), op) != std::end(kAll);
}

MaybeView ApplyLayout(const LayoutCall& call, const PlanView& in) {
  const std::string_view op = call.node.op;
  if (op == "Identity" || op == "Dropout") return in;
  if (op == "Unsqueeze") return Unsqueeze(call, in);
  if (op == "Squeeze") return Squeeze(call, in);
  if (op == "Transpose") return Transpose(call, in);
  if (op == "Expand") return Expand(call, in);
  if (op == "Gather") return Gather(call, in);
  if (in.gather_dim >= 0) return std::nullopt;
  if (op == "Slice") return Slice(call, in);
  return op == "Reshape" ? Reshape(call, in) : Flatten(call, in);
}

PlanView SliceOf(const PlanView& in, size_t dim, int64_t begin, int64_t count, int64_t step) {
  PlanView out = in;
  out.offset += begin * in.strides[dim];
  out.dims[dim] = count;
  // The step of a single element means nothing, and may be any number.
  if (count > 1) out.strides[dim] = in.strides[dim] * step;
  return out;
}

PlanView TransposeOf(const PlanView& in, std::span<const int64_t> order) {
  PlanView out = in;
  for (size_t d = 0; d < order.size(); ++d) {
    const auto from = static_cast<size_t>(order[d]);
    out.dims[d] = in.dims[from];
    out.strides[d] = in.strides[from];
    if (in.gather_dim == static_cast<int>(from)) out.gather_dim = static_cast<int>(d);
  }
  return out;
}

std::optional<PlanView> ReshapeOf(const PlanView& in, std::span<const int64_t> dims) {
  if (in.gather_dim >= 0) return std::nullopt;
  PlanView out = in;
  out.dims.assign(dims.begin(), dims.end());
  if (in.IsCompact() || in.ElementCount() == 0) {
    out.strides = CompactStrides(dims);
    return out;
  }
  // Rows of samples may have gaps behind them: their dimension stays, the others are compared.
  const size_t first = in.is_batched ? 1 : 0;
  if (in.is_batched && (dims.empty() || dims.front() != in.dims.front())) return std::nullopt;
  out.strides.assign(dims.size(), 0);
  if (in.is_batched) out.strides.front() = in.strides.front();
  size_t from = first, to = first;
  while (from < in.dims.size() || to < dims.size()) {
    // The smallest groups of dimensions with the same number of elements.
    int64_t from_count = 1, to_count = 1;
    const size_t from_begin = from, to_begin = to;
    if (from < in.dims.size()) from_count = in.dims[from++];
    if (to < dims.size()) to_count = dims[to++];
    while (from_count != to_count) {
      if (from_count < to_count) {
        from_count *= in.dims[from++];
      } else {
        to_count *= dims[to++];
      }
    }
    // Within the old group each dimension must continue the one behind it.
    std::optional<int64_t> innermost;  // 0: its elements are one that is repeated
    int64_t expected = 0;
    for (size_t d = from; d-- > from_begin;) {
      if (in.dims[d] == 1) continue;
      if (innermost.has_value() && in.strides[d] != expected) return std::nullopt;
      if (!innermost.has_value()) innermost = in.strides[d];
      expected = in.strides[d] * in.dims[d];
    }
    int64_t stride = innermost.value_or(0);
    for (size_t d = to; d-- > to_begin;) {
      out.strides[d] = stride;
      stride *= dims[d];
    }
  }
  return out;
}

std::optional<PlanView> BroadcastOf(const PlanView& in, std::span<const int64_t> dims,
                                    bool is_batched) {
  if (in.dims.size() > dims.size()) return std::nullopt;
  const size_t missing = dims.size() - in.dims.size();
  if (in.is_batched && (!is_batched || missing != 0)) return std::nullopt;
  PlanView out = in;
  out.is_batched = is_batched;
  out.dims.assign(dims.begin(), dims.end());
  out.strides.assign(dims.size(), 0);
  if (in.gather_dim >= 0) out.gather_dim += static_cast<int>(missing);
  for (size_t i = 0; i < in.dims.size(); ++i) {
    const size_t d = missing + i;
    const bool is_batch = d == 0 && is_batched;
    if (is_batch && !in.is_batched) {
      if (in.dims[i] != 1) return std::nullopt;
    } else if (in.dims[i] == dims[d]) {
      out.strides[d] = in.strides[i];
    } else if (in.dims[i] != 1 || is_batch || in.gather_dim == static_cast<int>(i)) {
      return std::nullopt;
    }
  }
  return out;
}

absl::StatusOr<size_t> AxisOf(int64_t axis, size_t rank) {
  const auto signed_rank = static_cast<int64_t>(rank);
  if (axis < -signed_rank || axis >= signed_rank) {
    return absl::InvalidArgumentError(
        absl::StrCat("axis ", axis, " of ", rank, " dimensions does not exist"));
  }
  return static_cast<size_t>(axis < 0 ? axis + signed_rank : axis);
}

absl::StatusOr<std::optional<std::vector<size_t>>> AxesOf(const LayoutCall& call, size_t argument,
                                                          size_t rank) {
  std::vector<int64_t> given;
  if (call.node.inputs.size() > argument && !call.node.inputs[argument].empty()) {
    HPS_ASSIGN_OR_RETURN(given, IntegerArgument(call, argument));
  } else {
    const auto found = call.node.integers.find("axes");
    if (found == call.node.integers.end()) return std::optional<std::vector<size_t>>();
    given = found->second;
  }
  std::vector<size_t> axes;
  for (const int64_t axis : given) {
    HPS_ASSIGN_OR_RETURN(const size_t at, AxisOf(axis, rank));
    axes.push_back(at);
  }
  return std::optional(axes);
}

}  // namespace hps
