#include "inference/execution_plan.h"

#include <cstring>

namespace hps {

void ExecutionPlan::Clear() {
  ClearTensorList(&parts);
  key_count = 0;
  is_prediction = false;
  joint_prediction = OutputPlace::kNone;
  for (PredictionInput& input : prediction.inputs) ClearTensorList(&input.offsets);
  network_bytes = 0;
  outputs = {};
  degraded_count = 0;
}

void ExecutionPlan::CopyJointOutputs() const {
  for (const TablePart& part : parts) {
    if (part.table_rows.is_set() && part.joint_rows.is_set())
      std::memcpy(At(part.joint_rows), At(part.table_rows), part.key_count * part.row_bytes);
    if (part.table_status.is_set() && part.joint_status.is_set())
      std::memcpy(At(part.joint_status), At(part.table_status), part.key_count);
  }
  if (joint_prediction == OutputPlace::kNone) return;
  const OutputTensor& first = outputs[prediction_outputs.front()];
  if (first.byte_count > 0)
    std::memcpy(outputs[joint_prediction].data, first.data, first.byte_count);
}

}  // namespace hps
