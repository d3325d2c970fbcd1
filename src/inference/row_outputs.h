// Gives the rows of tables and their statuses places in an answer. Requests for rows and requests
// for predictions may both ask for them.
//
// A table has the outputs NAME and NAME.status. OUTPUT0 and OUTPUT0.status have the rows and the
// statuses of all parts, one part after the other.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "inference/execution_plan.h"
#include "inference/model_version.h"
#include "inference/tensor.h"
#include "inference/tensor_checks.h"

namespace hps {

// Whether it is OUTPUT0 or OUTPUT0.status, and the model has these outputs.
bool IsJointOutput(const ModelVersion& version, std::string_view name);

// Works on a plan's parts and the answer's outputs. Both outlive it.
class RowOutputs {
 public:
  RowOutputs(const ModelVersion& version, const PlanLimits& limits, std::vector<TablePart>& parts,
             std::vector<OutputTensor>& outputs)
      : version_(version), limits_(limits), parts_(parts), outputs_(outputs) {}

  // Adds the output `name`, which lives as long as the answer. REQUIRES: the parts are complete,
  // and for a joint output in declared order. Errors: NOT_FOUND (no such output),
  // INVALID_ARGUMENT (it is asked for twice; its table has no part), OUT_OF_RANGE (too large).
  absl::Status Add(std::string_view name);
  absl::Status AddRowsOf(TablePart& part, std::string_view name);
  absl::Status AddJointRows();

  // Errors: INVALID_ARGUMENT (statuses are asked for without their rows).
  absl::Status CheckStatuses() const;

 private:
  absl::Status AddStatusesOf(TablePart& part, std::string_view name);
  absl::Status AddJointStatuses();

  const ModelVersion& version_;
  const PlanLimits& limits_;
  std::vector<TablePart>& parts_;
  std::vector<OutputTensor>& outputs_;
  bool has_joint_rows_ = false;
  bool has_joint_statuses_ = false;
};

}  // namespace hps
