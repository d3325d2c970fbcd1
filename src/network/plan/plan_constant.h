// Constants of a network while it is planned: tensors on the host, and sizes that grow with the
// batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "network/onnx/graph.h"
#include "network/plan/plan.h"

namespace hps {

// fixed + per_sample x batch: an element of what Shape makes, or a plain integer.
struct BatchNumber {
  int64_t fixed = 0;
  int64_t per_sample = 0;

  friend bool operator==(const BatchNumber&, const BatchNumber&) = default;
};

// Row-major. Floats of any width are in `floats`; integers and booleans in `integers`.
struct PlanConstant {
  OnnxElement element = OnnxElement::kFloat32;
  std::vector<int64_t> dims{};
  std::vector<float> floats{};
  std::vector<BatchNumber> integers{};

  bool IsFloat() const;
  int64_t ElementCount() const;
  // As plain integers; none if it has floats or depends on the batch.
  std::optional<std::vector<int64_t>> Integers() const;
  // Elements as float32. REQUIRES: none depends on the batch.
  std::vector<float> Floats() const;
  // All of it as a view whose elements lie in order.
  PlanView View() const;
  // The elements of a view of it. `indices`: those that the view's gather stands for.
  PlanConstant Picked(const PlanView& view, std::span<const int32_t> indices) const;
};

bool IsFloatElement(OnnxElement element);

PlanConstant ConstantOf(const OnnxTensor& tensor);

// Row-major strides without gaps.
std::vector<int64_t> CompactStrides(std::span<const int64_t> dims);

}  // namespace hps
