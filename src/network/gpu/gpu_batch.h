// A plan at one batch size, at its place in a session's memory: the launches, and their CUDA graph.
//
// Not thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/cuda_resources.h"
#include "hps/dense_math.h"
#include "network/gpu/gemm.h"
#include "network/gpu/kernels/steps.h"
#include "network/gpu/set_up_stream.h"
#include "network/plan/plan.h"

namespace hps {

// Where a plan's data lie on a device.
struct GpuPlanPlace {
  const DensePlan* plan = nullptr;
  const float* weights = nullptr;
  const std::byte* short_weights = nullptr;  // the same in 16 bits, if `math` has them
  const std::vector<OnnxElement>* buffer_elements = nullptr;
  const int32_t* indices = nullptr;
  std::byte* arena = nullptr;
  std::byte* padded = nullptr;
  uint32_t batch_max = 0;
  const RunArguments* arguments = nullptr;
  GemmPlace products;
  const SetUpStream* set_up = nullptr;
  DenseMath math = DenseMath::kFloat32;
};

// Steps of a network, for measurements.
enum class GpuPart : uint8_t {
  kProducts,  // matrix products, narrow ones as well
  kPairs,
  kRest,  // element by element, reductions, normalizations
};

class GpuBatch {
 public:
  // REQUIRES: the current device is the place's. Errors: RESOURCE_EXHAUSTED, UNIMPLEMENTED (sizes
  // beyond 32 bits, too many dimensions), DEADLINE_EXCEEDED (the device hangs), INTERNAL.
  static absl::StatusOr<GpuBatch> Make(const GpuPlanPlace& place, uint32_t size);

  uint32_t size() const { return size_; }
  const float* output(size_t i) const;

  absl::Status Launch(cudaStream_t stream) const;
  // For measurements: enqueues the steps of one kind alone.
  absl::Status LaunchPart(GpuPart part, cudaStream_t stream) const;

 private:
  struct ReduceLaunch {
    PlanReduction reduction;
    StepRows rows;
  };
  struct NormalizeLaunch {
    StepNormalization how;
    StepRows rows;
  };
  using StepLaunch =
      std::variant<ElementwiseLaunch, Gemm, StepPairs, StepNarrow, ReduceLaunch, NormalizeLaunch>;
  struct DestroyGraph {
    void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
  };

  GpuBatch(const GpuPlanPlace& place, uint32_t size) : place_(place), size_(size) {}
  absl::Status SetUp();
  absl::Status Record();
  absl::Status Enqueue(const StepLaunch& launch, cudaStream_t stream) const;

  absl::Status Add(const ElementwiseStep& step);
  absl::Status Add(const GemmStep& step);
  absl::Status AddNarrow(const GemmStep& step);
  absl::Status Add(const BatchedGemmStep& step);
  absl::Status AddGemm(GemmShape shape, OnnxElement element, OnnxElement out_element);
  absl::Status AddBatched(const GemmShape& shape, OnnxElement element, OnnxElement out_element);
  const std::byte* WeightsAt(int64_t offset, OnnxElement element) const;
  absl::Status Add(const PairsStep& step);
  absl::Status Add(const ReduceStep& step);
  absl::Status Add(const NormalizeStep& step);
  absl::StatusOr<StepEntry> EntryOf(const ElementwiseEntry& entry) const;
  absl::StatusOr<StepRows> RowsOf(const PlanView& in, const PlanView& out, bool keeps_last) const;
  StepView ViewOf(const PlanView& view) const;
  StepMemory MemoryOf(const PlanView& view) const;
  absl::StatusOr<std::byte*> Upload(std::span<const std::byte> data);

  GpuPlanPlace place_;
  uint32_t size_;
  std::vector<StepLaunch> launches_;
  std::vector<DeviceBuffer> tables_;  // what kernels read, besides weights
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph> graph_;
};

}  // namespace hps
