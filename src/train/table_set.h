// All tables of one device, and the steps that train them: one launch a phase, whatever the number
// of tables.
//
//   step = set->NewStep(tables, features);                   // reused for every step
//   status = step->Prepare(batch, mode, memory, stream);     // keys -> rows, and their order
//   status = step->Gather(outputs, dtype, stream);           // rows -> outputs
//   status = step->Reduce(gradients, scale, memory, stream); // gradients -> a sum for each row
//   status = step->Apply(factors, verdict, stream);          // sums -> rows and states
//
// Arrays of keys, outputs and gradients, and the memory of a step, are the device's. The calls
// queue work in the caller's stream and return: only Prepare waits for the device, and only where
// new rows may need more memory than the tables have, or a table may have reached `rows_max` or the
// limit of keys that wait for admission. A row that a step takes is read when Gather runs, and
// written when Apply runs.
//
// Rows, counts and states behave as EmbeddingShard says. Sums of gradients have a fixed order,
// which depends on the batch alone, so that equal calls give equal bits.
//
// Thread-safe: a call waits for another thread's, and its work for the work that was queued before
// it in other streams. A step is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/embedding_shard.h"
#include "train/set_batch.h"
#include "train/table_rows.h"

namespace hps {

// A queue of the device's work: a cudaStream_t. Null: the default one.
struct DeviceStream {
  void* handle = nullptr;
};

// The rows of a feature's output in device memory.
struct DeviceOutput {
  std::byte* rows = nullptr;  // [output rows, dim]; null: they are not wanted
  size_t stride_bytes = 0;    // from one row to the next
};

// The gradients of a feature's output; null: the loss does not depend on it.
struct DeviceGradient {
  const std::byte* rows = nullptr;  // [output rows, dim]
  size_t stride_bytes = 0;
};
struct DeviceGradients {
  std::span<const DeviceGradient> features;
  Dtype dtype = Dtype::kFloat32;
};

// Python gives the number.
enum class StepMode {
  kEvaluate,  // changes nothing; a key without a row has zeros
  kTrain,     // counts a step; keys get rows
  // Finds rows and their order, for one update with the gradients of several look-ups. Makes no
  // rows and counts no step.
  kOrder,
};

class TableStep {
 public:
  virtual ~TableStep() = default;

  // Bytes of device memory that Prepare needs for such a batch.
  // Errors: INVALID_ARGUMENT: numbers that do not fit; 2^29 keys or offsets, or more; weights of a
  // feature whose pooling is not kSum. INTERNAL: the device failed.
  virtual absl::StatusOr<size_t> PrepareBytes(const SetBatch& batch, StepMode mode) const = 0;

  // `memory` is used, and `batch.keys`, offsets and weights are read, until the work of Gather, or
  // of Apply if there is one, has been done. The device checks offsets; where they are wrong, no
  // key is looked up and no row changes, and a later call reports it.
  // Errors, here and below: those of PrepareBytes; INVALID_ARGUMENT: an earlier call's offsets;
  // RESOURCE_EXHAUSTED: no memory for new rows, or too many steps. The step is not counted and no
  // key has got a row, so the call may be made again; rows may have been erased for their age.
  // FAILED_PRECONDITION: the stream is being captured in a graph. INTERNAL: the device failed.
  virtual absl::Status Prepare(const SetBatch& batch, StepMode mode, std::span<std::byte> memory,
                               DeviceStream stream) = 0;

  // Pools rows in float32, and writes the result as `dtype`, rounded to the nearest value.
  // Must be called after a Prepare with kTrain, before its memory is freed: Prepare sorts in a
  // stream of its own, and Gather makes `stream` wait for it.
  virtual absl::Status Gather(std::span<const DeviceOutput> outputs, Dtype dtype,
                              DeviceStream stream) = 0;

  // Bytes of device memory that Reduce needs, at most.
  virtual size_t ReduceBytes() const = 0;

  // REQUIRES, also of Apply: the mode was not kEvaluate. `memory` is used until the work of Apply
  // has been done. `scale`: that of the update. The sums are float32.
  virtual absl::Status Reduce(const DeviceGradients& gradients, float scale,
                              std::span<std::byte> memory, DeviceStream stream) = 0;

  // Updates the rows, unless a sum is NaN, infinite or too large (train/gradient_bound.h): then no
  // row of any table changes. `factors`: [tables of the step]; their scale is that of Reduce, and
  // is not read again. A table whose gradients were all null is not updated. `verdict`: device
  // memory, becomes infinite if the rows were left as they are.
  virtual absl::Status Apply(std::span<const UpdateFactors> factors, float* verdict,
                             DeviceStream stream) = 0;
};

class TableSet {
 public:
  virtual ~TableSet() = default;

  // `tables`: numbers of tables of the set. SetFeature::table is a place among them.
  virtual std::unique_ptr<TableStep> NewStep(std::vector<size_t> tables,
                                             std::vector<SetFeature> features) = 0;

  // Its calls wait for the device.
  virtual TableRows& rows(size_t table) = 0;

  // Updates that changed no row so far. Waits for the device.
  virtual absl::StatusOr<uint64_t> SkippedUpdates() = 0;
};

// The tables of a CUDA device. Errors: those of ValidateShardOptions; UNIMPLEMENTED: a build
// without CUDA, an option that tables on a device do not have yet; UNAVAILABLE: no such device.
absl::StatusOr<std::unique_ptr<TableSet>> MakeDeviceTableSet(
    int device, const std::vector<ShardOptions>& tables);

}  // namespace hps
