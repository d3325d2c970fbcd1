// Runs a plan on the host, step by step and plainly: the oracle for the device's executor.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "network/plan/evaluate.h"
#include "network/plan/plan.h"

namespace hps {

class PlanRunner {
 public:
  explicit PlanRunner(const DensePlan& plan) : plan_(plan) {}

  // `inputs` as the plan lists them, each [batch, ...] converted to float32. Returns the outputs.
  std::vector<std::vector<float>> Run(int64_t batch, std::vector<std::vector<float>> inputs) {
    batch_ = batch;
    inputs_ = std::move(inputs);
    // What no step writes must not be read: it is NaN, but for the zeros behind rows.
    arena_.assign(static_cast<size_t>(plan_.arena_elements * batch), NAN);
    padded_.assign(static_cast<size_t>(plan_.padded_elements * batch), 0.0F);
    for (const PlanStep& step : plan_.steps)
      std::visit([this](const auto& of) { RunStep(of); }, step);
    std::vector<std::vector<float>> outputs;
    for (const PlanView& view : plan_.output_views) {
      std::vector<float>& output = outputs.emplace_back();
      ForEach(view, [&](const std::vector<int64_t>& at) { output.push_back(Load(view, at)); });
    }
    return outputs;
  }

 private:
  // The view's dims, of the whole batch.
  std::vector<int64_t> DimsOf(const PlanView& view) const {
    std::vector<int64_t> dims = view.dims;
    if (view.is_batched) dims.front() *= batch_;
    return dims;
  }

  template <typename Visit>
  void ForEach(const PlanView& view, Visit visit) const {
    const std::vector<int64_t> dims = DimsOf(view);
    std::vector<int64_t> at(dims.size(), 0);
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    for (int64_t i = 0; i < count; ++i) {
      visit(at);
      for (size_t d = at.size(); d-- > 0;) {
        if (++at[d] < dims[d]) break;
        at[d] = 0;
      }
    }
  }

  int64_t OffsetOf(const PlanView& view, const std::vector<int64_t>& at) const {
    int64_t offset = view.offset;
    for (size_t d = 0; d < at.size(); ++d) {
      const bool is_gathered = view.gather_dim == static_cast<int>(d);
      const int64_t c =
          is_gathered ? plan_.indices[static_cast<size_t>(view.gather_begin + at[d])] : at[d];
      offset += view.strides[d] * c;
    }
    if (view.memory == PlanMemory::kBuffer) offset += plan_.buffers[view.index].offset * batch_;
    return offset;
  }

  float Load(const PlanView& view, const std::vector<int64_t>& at) const {
    const auto offset = static_cast<size_t>(OffsetOf(view, at));
    if (view.memory == PlanMemory::kWeights) return plan_.weights.at(offset);
    if (view.memory == PlanMemory::kInput) return inputs_[view.index].at(offset);
    return plan_.buffers[view.index].is_zero_padded ? padded_.at(offset) : arena_.at(offset);
  }

  void Store(const PlanView& view, const std::vector<int64_t>& at, float value) {
    EXPECT_EQ(view.memory, PlanMemory::kBuffer);
    std::vector<float>& memory = plan_.buffers[view.index].is_zero_padded ? padded_ : arena_;
    memory.at(static_cast<size_t>(OffsetOf(view, at))) = value;
  }

  // Completes `values`, which has the inputs, with the results of the program; returns the last
  // one.
  static float Compute(const std::vector<PlanInstruction>& program, std::map<int, float> values) {
    float result = values[0];
    for (size_t i = 0; i < program.size(); ++i) {
      const PlanInstruction& instruction = program[i];
      float operands[3];
      for (size_t o = 0; o < 3; ++o) {
        const uint8_t operand = instruction.operands[o];
        operands[o] = operand == kPlanImmediate ? instruction.immediate : values[operand];
      }
      result = Evaluate(instruction.operation, operands[0], operands[1], operands[2]);
      values[static_cast<int>(kPlanInputsMax + i)] = result;
    }
    return result;
  }

  void RunStep(const ElementwiseStep& step) {
    for (const ElementwiseEntry& entry : step.entries) {
      ForEach(entry.output, [&](const std::vector<int64_t>& at) {
        std::map<int, float> values;
        for (size_t i = 0; i < entry.inputs.size(); ++i) {
          EXPECT_EQ(DimsOf(entry.inputs[i]), DimsOf(entry.output));
          values[static_cast<int>(i)] = Load(entry.inputs[i], at);
        }
        Store(entry.output, at, Compute(entry.program, values));
      });
    }
  }

  void RunStep(const GemmStep& step) {
    PlanView a = step.a;
    a.dims.back() = step.k;  // with the zeros behind it
    ForEach(step.out, [&](const std::vector<int64_t>& at) {
      double sum = step.bias < 0 ? 0 : plan_.weights.at(static_cast<size_t>(step.bias + at[1]));
      for (int64_t k = 0; k < step.k; ++k) {
        const auto weight = static_cast<size_t>(step.weights + at[1] * step.k + k);
        sum += double{Load(a, {at[0], k})} * double{plan_.weights.at(weight)};
      }
      const auto result = static_cast<float>(step.has_relu && sum < 0 ? 0 : sum);
      Store(step.out, at, Compute(step.program, {{0, result}}));
    });
  }

  void RunStep(const BatchedGemmStep& step) {
    ForEach(step.out, [&](const std::vector<int64_t>& at) {
      double sum = 0;
      for (int64_t k = 0; k < step.a.dims[2]; ++k)
        sum += double{Load(step.a, {at[0], at[1], k})} * double{Load(step.b, {at[0], k, at[2]})};
      Store(step.out, at, static_cast<float>(sum));
    });
  }

  void RunStep(const PairsStep& step) {
    for (int64_t sample = 0; sample < batch_; ++sample) {
      std::vector<std::vector<float>> rows;
      for (const PlanView& part : step.parts) {
        for (int64_t r = 0; r < part.dims[1]; ++r) {
          std::vector<float>& row = rows.emplace_back();
          for (int64_t c = 0; c < step.width; ++c) row.push_back(Load(part, {sample, r, c}));
        }
      }
      for (int64_t e = 0; e < step.selected_count; ++e) {
        const int64_t pair = plan_.indices[static_cast<size_t>(step.selected_begin + e)];
        double sum = 0;
        for (size_t c = 0; c < static_cast<size_t>(step.width); ++c)
          sum += double{rows[static_cast<size_t>(pair / step.rows)][c]} *
                 double{rows[static_cast<size_t>(pair % step.rows)][c]};
        Store(step.out, {sample, e}, static_cast<float>(sum));
      }
    }
  }

  std::vector<double> RowOf(const PlanView& in, std::vector<int64_t> at, bool has_last) const {
    if (!has_last) at.push_back(0);
    std::vector<double> row;
    for (at.back() = 0; at.back() < in.dims.back(); ++at.back()) row.push_back(Load(in, at));
    return row;
  }

  void RunStep(const ReduceStep& step) {
    ForEach(step.out, [&](const std::vector<int64_t>& at) {
      const std::vector<double> row = RowOf(step.in, at, false);
      double sum = 0, product = 1, squares = 0, absolute = 0;
      for (const double x : row) sum += x, product *= x, squares += x * x, absolute += std::fabs(x);
      const std::map<PlanReduction, double> results = {
          {PlanReduction::kSum, sum},
          {PlanReduction::kMean, sum / static_cast<double>(row.size())},
          {PlanReduction::kMax, *std::max_element(row.begin(), row.end())},
          {PlanReduction::kMin, *std::min_element(row.begin(), row.end())},
          {PlanReduction::kProduct, product},
          {PlanReduction::kSumSquare, squares},
          {PlanReduction::kL1, absolute},
          {PlanReduction::kL2, std::sqrt(squares)}};
      Store(step.out, at, static_cast<float>(results.at(step.reduction)));
    });
  }

  void RunStep(const NormalizeStep& step) {
    ForEach(step.out, [&](const std::vector<int64_t>& at) {
      const std::vector<double> row = RowOf(step.in, at, true);
      const auto c = static_cast<size_t>(at.back());
      const auto width = static_cast<double>(row.size());
      double result = 0;
      if (step.kind == PlanNormalization::kLayer) {
        double mean = 0, variance = 0;
        for (const double x : row) mean += x / width;
        for (const double x : row) variance += (x - mean) * (x - mean) / width;
        result = (row[c] - mean) / std::sqrt(variance + double{step.epsilon});
        if (step.scale >= 0) result *= plan_.weights.at(static_cast<size_t>(step.scale) + c);
        if (step.bias >= 0) result += plan_.weights.at(static_cast<size_t>(step.bias) + c);
      } else {
        const double top = *std::max_element(row.begin(), row.end());
        double sum = 0;
        for (const double x : row) sum += std::exp(x - top);
        result = step.kind == PlanNormalization::kSoftmax ? std::exp(row[c] - top) / sum
                                                          : row[c] - top - std::log(sum);
      }
      Store(step.out, at, static_cast<float>(result));
    });
  }

  const DensePlan& plan_;
  int64_t batch_ = 0;
  std::vector<std::vector<float>> inputs_;
  std::vector<float> arena_;
  std::vector<float> padded_;
};

}  // namespace hps
