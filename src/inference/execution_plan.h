// What one request takes to be answered: the keys of which tables are looked up, what the network
// is fed with, and where rows, statuses and predictions go. Made by PlanRequest (request_plan.h),
// and executed with others by BatchExecutor (batch_executor.h).
//
// A plain value that is filled in again for the next request; its vectors keep their memory. For
// one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "inference/prediction.h"
#include "inference/tensor.h"

namespace hps {

// A place in the answer: an output of the request, from an offset on.
struct OutputPlace {
  static constexpr size_t kNone = static_cast<size_t>(-1);

  size_t output = kNone;  // index in the outputs
  size_t offset_bytes = 0;

  bool is_set() const { return output != kNone; }
};

// The keys of one table in a request, and where their answers go: to the table's own outputs, to
// the joint ones of all tables (OUTPUT0), or to both. The lookup writes to `rows()` and `status()`;
// where both are asked for, the joint ones are copies.
struct TablePart {
  uint32_t table = 0;                    // index in the version's tables
  const std::byte* keys = nullptr;       // [key_count] of key_type, not necessarily aligned
  Datatype key_type = Datatype::kInt64;  // or kUint64, kInt32, kUint32
  size_t key_count = 0;
  Shape key_shape{};
  size_t row_bytes = 0;
  OutputPlace table_rows{};
  OutputPlace joint_rows{};
  OutputPlace table_status{};
  OutputPlace joint_status{};
  // Of a prediction, where the client does not ask for the rows: where they go. In the memory of a
  // device where the batch is looked up there.
  std::byte* network_rows = nullptr;

  const OutputPlace& rows() const { return table_rows.is_set() ? table_rows : joint_rows; }
  const OutputPlace& status() const { return table_status.is_set() ? table_status : joint_status; }
};

struct ExecutionPlan {
  std::vector<TablePart> parts;
  size_t key_count = 0;
  // The request is for the network's outputs. prediction.outputs and the inputs' rows get their
  // memory when it is executed.
  bool is_prediction = false;
  Prediction prediction;
  // By output of the network: index in the outputs, or OutputPlace::kNone.
  std::vector<size_t> prediction_outputs;
  // Output that is a copy of the network's first one, or OutputPlace::kNone.
  size_t joint_prediction = OutputPlace::kNone;
  uint64_t network_bytes = 0;  // that rows and inputs of the network take meanwhile
  // As planned; each gets its memory before the plan is executed.
  std::span<OutputTensor> outputs;
  // Of the lookup: positions that got a default row because a level failed or the deadline passed.
  size_t degraded_count = 0;

  // Forgets the request.
  void Clear();

  std::byte* At(const OutputPlace& place) const {
    return outputs[place.output].data + place.offset_bytes;
  }

  // Fills in joint outputs from the tables' own ones and the network's first one, where both are
  // asked for.
  void CopyJointOutputs() const;
};

}  // namespace hps
