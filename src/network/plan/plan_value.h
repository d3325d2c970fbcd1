// A value of the network while it is planned. Most are not computed at once: the node that uses one
// may take it into its own step (an activation into its GEMM, a chain of elementwise operations
// into one kernel, parts into the memory of their concatenation).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "network/onnx/graph.h"
#include "network/plan/plan.h"
#include "network/plan/plan_constant.h"

namespace hps {

struct PendingElementwise {
  std::vector<PlanView> inputs{};
  std::vector<PlanInstruction> program{};
};

struct PendingGemm {
  PlanView a;                  // [rows, k]
  std::vector<float> weights;  // [n, k]
  int64_t n = 0;
  std::vector<float> bias{};  // [n], or empty
  bool has_relu = false;
};

struct PendingConcat {
  struct Part {
    std::string_view name;  // of the value; empty: `view` is it
    PlanView view{};
  };
  std::vector<Part> parts;
  size_t axis = 0;
};

// The last two dimensions of a concatenation exchanged.
struct PendingTranspose {
  std::string_view of;
};

// Dot products of all pairs; `selected` as in PairsStep.
struct PendingPairs {
  std::vector<PlanView> parts;
  int64_t rows = 0;
  int64_t width = 0;
  std::vector<int32_t> selected;
};

struct PlanValue {
  OnnxElement element = OnnxElement::kFloat32;
  bool is_batched = false;
  std::vector<int64_t> dims{};  // of one sample if it is batched
  std::variant<PlanConstant, PlanView, PendingElementwise, PendingGemm, PendingConcat,
               PendingTranspose, PendingPairs>
      made;

  // Null if it was made otherwise.
  template <typename Kind>
  Kind* As() {
    return std::get_if<Kind>(&made);
  }
  template <typename Kind>
  const Kind* As() const {
    return std::get_if<Kind>(&made);
  }
};

}  // namespace hps
