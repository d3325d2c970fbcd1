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
#include "gpu/cuda_resources.h"
#include "hps/dense_math.h"
#include "network/dense_network.h"
#include "network/gpu/cublas.h"
#include "network/gpu/gemm.h"
#include "network/gpu/gpu_batch.h"
#include "network/gpu/kernels/steps.h"
#include "network/gpu/set_up_stream.h"
#include "network/plan/plan.h"

namespace hps {

class GpuNetworkSession;

class GpuNetwork {
 public:
  // Copies the weights to the device. Errors: UNAVAILABLE (no device, no cuBLASLt), UNIMPLEMENTED
  // (more inputs or dimensions than the kernels take), RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED (the
  // device hangs), INTERNAL.
  static absl::StatusOr<std::unique_ptr<GpuNetwork>> Make(DensePlan plan,
                                                          const DeviceDenseOptions& options);
  ~GpuNetwork();
  GpuNetwork(const GpuNetwork&) = delete;
  GpuNetwork& operator=(const GpuNetwork&) = delete;

  const DensePlan& plan() const { return plan_; }
  const DeviceDenseOptions& options() const { return options_; }

  // For runs of up to options().batch_max samples, or `batch_max`. Records the graphs; the first
  // session chooses the algorithms of GEMMs, which takes some 10 ms per batch size. Errors:
  // RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED (the device hangs), INTERNAL.
  absl::StatusOr<std::unique_ptr<GpuNetworkSession>> NewSession();
  absl::StatusOr<std::unique_ptr<GpuNetworkSession>> NewSession(uint32_t batch_max);

 private:
  friend class GpuNetworkSession;
  GpuNetwork(DensePlan plan, const DeviceDenseOptions& options)
      : plan_(std::move(plan)), options_(options) {}
  absl::Status SetUp();

  const DensePlan plan_;
  const DeviceDenseOptions options_;
  const Cublas* cublas_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer weights_;
  DeviceBuffer short_weights_;  // the same in 16 bits, if the math has them
  DeviceBuffer indices_;
  std::vector<OnnxElement> buffer_elements_;
  GemmChoices gemm_choices_;
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

  // Samples of a run, at most.
  uint32_t batch_max() const { return batches_.back().size(); }

  // For measurements: enqueues the steps of one kind of such a batch alone, on what earlier runs
  // left in the buffers. REQUIRES: there was a run.
  absl::Status RunPart(uint32_t batch, GpuPart part, cudaStream_t stream);

 private:
  friend class GpuNetwork;
  explicit GpuNetworkSession(GpuNetwork& network) : network_(network) {}
  absl::Status SetUp(uint32_t samples);
  absl::StatusOr<GpuBatch*> BatchOf(uint32_t batch);

  GpuNetwork& network_;
  SetUpStream set_up_;
  DeviceBuffer arena_;
  DeviceBuffer padded_;  // with the zeros behind rows
  DeviceBuffer workspace_;
  DeviceBuffer arguments_;
  std::vector<GpuBatch> batches_;  // of 1, 2, 4 ... samples
  const GpuBatch* last_ = nullptr;
};

}  // namespace hps
