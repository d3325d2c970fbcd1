// A dense network on a GPU: the plan's weights on the device, and sessions that run it.
//
// A session has memory for the largest batch, and a CUDA graph for each batch size that is a power
// of two; a batch runs in the next larger one. The inputs stay where they are: kernels read their
// addresses from a few words that each run sets first.
//
// A GpuNetwork is thread-safe; a session is for one thread at a time, and ends before its network.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_budget.h"
#include "dense_gpu/cublas.h"
#include "dense_gpu/gemm.h"
#include "dense_gpu/gpu_batch.h"
#include "dense_gpu/kernels/steps.h"
#include "dense_plan/plan.h"
#include "l1_gpu/cuda_resources.h"

namespace hps {

struct GpuNetworkOptions {
  int device = 0;
  uint32_t batch_max = 4096;
  GpuMath math = GpuMath::kFloat32;
  std::shared_ptr<ByteBudget> row_budget{};  // DeviceDenseOptions::row_budget
};

class GpuNetworkSession;

class GpuNetwork {
 public:
  // Copies the weights to the device. Errors: UNAVAILABLE (no device, no cuBLASLt), UNIMPLEMENTED
  // (more inputs or dimensions than the kernels take), RESOURCE_EXHAUSTED, INTERNAL.
  static absl::StatusOr<std::unique_ptr<GpuNetwork>> Make(DensePlan plan,
                                                          const GpuNetworkOptions& options);
  ~GpuNetwork();
  GpuNetwork(const GpuNetwork&) = delete;
  GpuNetwork& operator=(const GpuNetwork&) = delete;

  const DensePlan& plan() const { return plan_; }
  const GpuNetworkOptions& options() const { return options_; }

  // Chooses the algorithms of GEMMs and records the graphs: takes some 10 ms per batch size.
  // Errors: RESOURCE_EXHAUSTED, INTERNAL.
  absl::StatusOr<std::unique_ptr<GpuNetworkSession>> NewSession();

 private:
  friend class GpuNetworkSession;
  GpuNetwork(DensePlan plan, const GpuNetworkOptions& options)
      : plan_(std::move(plan)), options_(options) {}
  absl::Status SetUp();

  const DensePlan plan_;
  const GpuNetworkOptions options_;
  const Cublas* cublas_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer weights_;
  DeviceBuffer indices_;
};

class GpuNetworkSession {
 public:
  // Enqueues a run on `stream`. `inputs` are device memory, as the plan lists them: [batch, ...],
  // row-major, each at a multiple of 16 bytes; they may be used again when the stream has passed
  // the run. REQUIRES: the previous run's stream has passed it, or is the same stream.
  // Errors: INVALID_ARGUMENT (the batch is 0 or too large, an address is not aligned), INTERNAL.
  absl::Status Run(uint32_t batch, std::span<const std::byte* const> inputs, cudaStream_t stream);

  // Device memory, [batch, ...] float32; valid when the stream has passed the run, until the next.
  const float* output(size_t i) const;

  // For measurements: enqueues the matrix products of such a batch alone.
  absl::Status RunGemms(uint32_t batch, cudaStream_t stream);

 private:
  friend class GpuNetwork;
  explicit GpuNetworkSession(const GpuNetwork& network) : network_(network) {}
  absl::Status SetUp();
  absl::StatusOr<GpuBatch*> BatchOf(uint32_t batch);

  const GpuNetwork& network_;
  DeviceBuffer arena_;
  DeviceBuffer padded_;  // with the zeros behind rows
  DeviceBuffer workspace_;
  DeviceBuffer arguments_;
  std::vector<GpuBatch> batches_;  // of 1, 2, 4 ... samples
  const GpuBatch* last_ = nullptr;
};

}  // namespace hps
