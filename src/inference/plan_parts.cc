#include "inference/plan_parts.h"

#include <algorithm>
#include <cstdint>

#include "base/macros.h"

namespace hps {
namespace {

// Rows of the first samples of an input that reads a table.
uint64_t RowsBefore(const PredictionInput& input, uint64_t sample) {
  return input.offsets.empty() ? sample * input.sample_keys
                               : static_cast<uint64_t>(input.offsets[sample]);
}

void CutInput(const PredictionInput& input, uint64_t batch, const SampleRange& samples,
              PredictionInput& part) {
  part.sample_keys = input.sample_keys;
  part.sample_dims = input.sample_dims;
  const uint64_t sample_bytes = input.sent.size() / batch;
  part.sent = input.sent.subspan(samples.begin * sample_bytes, samples.count * sample_bytes);
  if (input.offsets.empty()) return;
  const auto begin = input.offsets.begin() + static_cast<std::ptrdiff_t>(samples.begin);
  part.offsets.assign(begin, begin + static_cast<std::ptrdiff_t>(samples.count + 1));
  const int64_t first = part.offsets.front();
  for (int64_t& offset : part.offsets) offset -= first;
}

// All inputs that read a table have the same keys for each sample.
TablePart CutTable(const NetworkSignature& signature, const Prediction& prediction,
                   const TablePart& table, const SampleRange& samples) {
  const auto reads = [&](const NetworkSignature::Input& of) { return of.table == table.table; };
  const auto reader = std::find_if(signature.inputs.begin(), signature.inputs.end(), reads);
  HPS_CHECK(reader != signature.inputs.end());
  const PredictionInput& input =
      prediction.inputs[static_cast<size_t>(reader - signature.inputs.begin())];
  const uint64_t begin = RowsBefore(input, samples.begin);
  const uint64_t end = RowsBefore(input, samples.begin + samples.count);
  HPS_CHECK(begin <= end && end <= table.key_count);
  return {.table = table.table,
          .keys = table.keys + begin * DatatypeBytes(table.key_type),
          .key_type = table.key_type,
          .key_count = end - begin,
          .row_bytes = table.row_bytes};
}

}  // namespace

void CutPlan(const NetworkSignature& signature, const ExecutionPlan& plan,
             const SampleRange& samples, ExecutionPlan& part) {
  const Prediction& whole = plan.prediction;
  part.Clear();
  part.is_prediction = true;
  part.prediction.Reset(whole.inputs.size(), whole.outputs.size());
  part.prediction.batch = samples.count;
  for (size_t i = 0; i < whole.inputs.size(); ++i)
    CutInput(whole.inputs[i], whole.batch, samples, part.prediction.inputs[i]);
  for (const TablePart& table : plan.parts) {
    part.parts.push_back(CutTable(signature, whole, table, samples));
    part.key_count += part.parts.back().key_count;
  }
}

}  // namespace hps
