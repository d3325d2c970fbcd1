// A session of a dense network on a GPU behind the interface of src/network: from tensors of the
// host, or from rows that have been looked up into its memory.
//
// RunFromRows cuts its samples into runs of the network, and enqueues all of them: while one run is
// on the device, the host brings the inputs of the next. It waits once, at the end. A call in
// parts has its runs on the room's second stream, beside the lookups on the first.
//
// All memory, events and graphs are made with the session; no call makes or frees any.
//
// For one thread at a time; ends before its network. A run that the device does not end within ten
// seconds after the one before it is given up, and so is every later one until the device has
// passed it. The destructor waits as long.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "gpu/cuda_resources.h"
#include "network/dense_network.h"
#include "network/gpu/gpu_network.h"
#include "network/gpu/gpu_row_room.h"
#include "network/gpu/session_sizes.h"

namespace hps {

class GpuDenseSession final : public DenseSession {
 public:
  // `sizes`: of the network's sessions. `copy_teams`: as GpuRowRoom takes it. Errors:
  // RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED (the device hangs), UNAVAILABLE, INTERNAL.
  static absl::StatusOr<std::unique_ptr<DenseSession>> Make(GpuNetwork& network,
                                                            const SessionSizes& sizes,
                                                            ForkJoinPool* copy_teams);
  ~GpuDenseSession() override;

  absl::Status Run(std::span<const DenseTensor> inputs,
                   std::span<const DenseTensor> outputs) override;
  RowRoom* row_room() override { return room_.get(); }
  DeviceLimits device_limits() const override { return sizes_.limits; }
  absl::Status RunFromRows(uint32_t samples, std::span<const FedInput> inputs,
                           std::span<std::byte* const> outputs) override;
  absl::Status BeginParts(uint32_t samples) override;
  absl::Status EnqueuePart(const SampleRange& part, std::span<const FedInput> inputs) override;
  absl::Status EndParts(std::span<std::byte* const> outputs) override;

 private:
  GpuDenseSession(GpuNetwork& network, const SessionSizes& sizes)
      : network_(network), sizes_(sizes) {}
  absl::Status SetUp(ForkJoinPool* copy_teams);

  uint64_t SampleBytes(size_t input) const;
  uint64_t OutputBytes(size_t output, uint64_t samples) const;
  absl::Status CheckShapes(int64_t batch, std::span<const DenseTensor> inputs,
                           std::span<const DenseTensor> outputs) const;
  absl::Status CheckFed(uint64_t samples, std::span<const FedInput> inputs) const;

  absl::Status Begin();
  absl::Status MarkEndOfRun();
  absl::Status WaitForRuns(size_t end, Duration run_max);
  absl::Status WaitForEarlierRuns(Duration run_max);
  absl::Status WaitInCall(size_t end);
  absl::Status CopyOutputs(const SampleRange& run);
  absl::Status End(std::span<std::byte* const> outputs);

  absl::Status EnqueueRuns(const SampleRange& part, std::span<const FedInput> inputs);
  absl::Status EnqueueRun(const SampleRange& run);
  void Slice(const SampleRange& run, std::span<const FedInput> inputs);
  uint64_t LayOut();
  absl::Status Feed(uint64_t count);
  absl::Status PoolRows(uint64_t count, uint64_t brought_bytes);

  GpuNetwork& network_;
  const SessionSizes sizes_;
  std::unique_ptr<GpuNetworkSession> session_;
  std::unique_ptr<GpuRowRoom> room_;        // has the streams
  std::vector<DeviceBuffer> inputs_;        // by input, of a run: where they are made
  std::vector<FedInput> fed_;               // by input, of a run
  std::vector<const std::byte*> pointers_;  // likewise
  // What a call brings from the host, run by run: steps of the pooling, bags, inputs that were
  // sent. Of a call in parts, each part has a third.
  PinnedBuffer brought_;
  DeviceBuffer brought_there_;
  uint64_t brought_begin_ = 0;        // of the run
  std::vector<uint64_t> brought_at_;  // by input, of the run
  std::vector<size_t> pooled_;        // the inputs that are made of rows
  PinnedBuffer outputs_;              // of a call, one after the other
  std::vector<std::byte*> to_;        // where they go, of Run
  // A call was begun and has not been seen to end; it was given up.
  bool is_open_ = false;
  bool is_late_ = false;
  cudaStream_t stream_ = nullptr;                       // of the call
  uint64_t samples_ = 0;                                // of the call
  std::vector<CudaEvent> run_ends_;                     // [call_runs]: the call's runs take turns
  size_t enqueued_ = 0;                                 // runs of the call
  size_t ended_ = 0;                                    // of these, as far as seen
  size_t parts_ = 0;                                    // of the call, that were enqueued
  std::array<size_t, RowRoom::kPartsMax> part_ends_{};  // by part, in turn: runs until then
};

}  // namespace hps
