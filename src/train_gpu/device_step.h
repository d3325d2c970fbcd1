// A step over tables of a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "train/table_set.h"
#include "train_gpu/ageing.h"
#include "train_gpu/device_storage.h"
#include "train_gpu/kernels/kernels.h"
#include "train_gpu/kernels/step_view.h"

namespace hps {

// What Prepare knows of a batch and later calls need.
struct BatchSizes {
  uint32_t output_rows_max = 0;  // of a feature
  size_t sum_count = 0;          // float32 values of the sums of all rows, at most
};

struct SortScratch {
  size_t key_count = 0;
  size_t bytes = 0;
};

class DeviceStep final : public TableStep {
 public:
  // Everything is borrowed. `progress`: of each table of the set, guarded by the storage's mutex.
  DeviceStep(DeviceStorage* storage, std::span<TableProgress> progress, std::vector<size_t> tables,
             std::vector<SetFeature> features);

  // Gives keys rows at once, without a training step; rows() has them. For DeviceRows.
  // REQUIRES: the storage's mutex is held, its device current, and there are no offsets.
  absl::Status InsertRows(const SetBatch& batch, std::span<std::byte> memory, cudaStream_t stream);
  const uint32_t* rows() const { return view_.found.rows; }

  absl::StatusOr<size_t> PrepareBytes(const SetBatch& batch, StepMode mode) const override;
  absl::Status Prepare(const SetBatch& batch, StepMode mode, std::span<std::byte> memory,
                       DeviceStream stream) override;
  absl::Status Gather(std::span<const DeviceOutput> outputs, Dtype dtype,
                      DeviceStream stream) override;
  size_t ReduceBytes() const override;
  absl::Status Reduce(const DeviceGradients& gradients, float scale, std::span<std::byte> memory,
                      DeviceStream stream) override;
  absl::Status Apply(std::span<const UpdateFactors> factors, float* verdict,
                     DeviceStream stream) override;

 private:
  absl::Status CheckBatch(const SetBatch& batch) const;
  // Lays the arrays of the view out in memory that begins at `memory`, which may be null: then only
  // the size is of interest.
  size_t LayOut(const SetBatch& batch, StepMode mode, size_t scratch_bytes, std::byte* memory,
                TrainStepView& view) const;
  size_t LayOutReduce(std::byte* memory, ReduceView& reduce) const;
  absl::StatusOr<size_t> ScratchBytes(size_t key_count, StepMode mode) const;
  // Begins a step in this memory. Errors: INVALID_ARGUMENT: it is too small.
  absl::Status UseMemory(const SetBatch& batch, StepMode mode, std::span<std::byte> memory);
  // Of the step's features, tables and groups, as their arrays are on the device.
  std::vector<std::byte> Describe(const SetBatch& batch);
  absl::Status CountTraining();
  void UncountTraining();
  absl::Status StartStep(const SetBatch& batch, bool is_seen, cudaStream_t stream);
  absl::Status FindRowsOf(const SetBatch& batch, StepMode mode, cudaStream_t stream);
  absl::Status OrderBeside(cudaStream_t stream);
  absl::Status WaitForOrder(cudaStream_t stream) const;
  absl::Status TakeRows(const SetBatch& batch, cudaStream_t stream);
  absl::Status MakeRoom(const NewKeys& bound, cudaStream_t stream, NewKeys& taken);
  NewKeys NewRowsBound(const SetBatch& batch) const;
  bool IsAligned(const FeatureRows& rows, Dtype dtype, size_t feature) const;
  uint32_t dim(size_t feature) const;

  DeviceStorage* const storage_;
  const std::span<TableProgress> progress_;
  const std::vector<size_t> tables_;
  const std::vector<SetFeature> features_;
  std::vector<size_t> order_;  // of the features on the device
  std::vector<StepGroup> groups_;
  uint32_t dim_max_ = 0;

  CudaEvent found_;    // the rows of a training step
  CudaEvent ordered_;  // and their order

  // The memory of a sort, which takes a while to ask for, of as many keys as in the last call.
  mutable SortScratch scratch_;

  // What the last Prepare and Reduce have queued.
  enum class Stage { kNone, kFound, kOrdered, kReduced };
  Stage stage_ = Stage::kNone;
  TrainStepView view_{};
  ReduceView reduce_{};
  BatchSizes sizes_;
  std::vector<uint8_t> has_gradients_;  // [tables]
};

}  // namespace hps
