// A dense network on a GPU behind the interface of src/network (gpu_dense_session.h).
#include <cuda_runtime_api.h>

#include <algorithm>
#include <climits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/executor.h"
#include "base/fork_join_team.h"
#include "base/logging.h"
#include "base/macros.h"
#include "base/public_message.h"
#include "gpu/cuda_status.h"
#include "network/dense_network.h"
#include "network/gpu/gpu_dense_session.h"
#include "network/gpu/gpu_network.h"
#include "network/gpu/session_sizes.h"
#include "network/onnx/model.h"
#include "network/plan/plan_maker.h"

namespace hps {
namespace {

// Threads that help to copy the keys of large batches; a fourth of the cores, at most these.
constexpr size_t kCopyThreadsMax = 4;
// Between the parts of a batch, a helper is still awake.
constexpr Duration kCopyHelperSpin = std::chrono::microseconds(500);

class GpuDenseNetwork final : public DenseNetwork {
 public:
  GpuDenseNetwork(std::unique_ptr<GpuNetwork> network, const SessionSizes& sizes)
      : network_(std::move(network)), sizes_(sizes) {}

  // Without them, a slot copies alone.
  void StartCopyThreads() {
    const size_t threads =
        std::min<size_t>(kCopyThreadsMax, std::thread::hardware_concurrency() / 4);
    if (threads == 0) return;
    auto started = WorkerPool::Create({.name = "key copy", .thread_count = threads});
    if (!started.ok()) {
      LogWarning(absl::StrCat("no threads help to copy the keys of large predictions: ",
                              TextForLog(started.status())));
      return;
    }
    copy_threads_ = *std::move(started);
    copy_teams_ = std::make_unique<ForkJoinPool>(ForkJoinPool::Options{
        .executor = copy_threads_.get(), .helpers_max = threads, .spin = kCopyHelperSpin});
  }

  std::span<const OnnxValue> inputs() const override { return network_->plan().inputs; }
  std::span<const OnnxValue> outputs() const override { return network_->plan().outputs; }
  absl::StatusOr<std::unique_ptr<DenseSession>> NewSession() override {
    return GpuDenseSession::Make(*network_, sizes_, copy_teams_.get());
  }

 private:
  const std::unique_ptr<GpuNetwork> network_;
  const SessionSizes sizes_;
  std::unique_ptr<ForkJoinPool> copy_teams_;  // outlives the threads; null = no helpers
  std::unique_ptr<WorkerPool> copy_threads_;
};

absl::StatusOr<uint64_t> FreeDeviceBytes(int device) {
  const DeviceScope scope(device);
  HPS_RETURN_IF_ERROR(scope.Check());
  size_t free = 0, total = 0;
  HPS_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "the device's free memory"));
  return free;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeDeviceDenseNetwork(
    const ModelNetwork& network, const DeviceDenseOptions& options) {
  HPS_ASSIGN_OR_RETURN(
      const OnnxModel model,
      OnnxModel::Parse(AsBytes(std::string_view(network.onnx)), {.bytes_max = INT_MAX}));
  HPS_ASSIGN_OR_RETURN(DensePlan plan, MakeDensePlan(model.graph()));
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<GpuNetwork> made,
                       GpuNetwork::Make(std::move(plan), options));
  HPS_ASSIGN_OR_RETURN(const uint64_t free_bytes, FreeDeviceBytes(options.device));
  const SessionSizes sizes = SizesOf(made->plan(), network, options, free_bytes);
  auto dense = std::make_unique<GpuDenseNetwork>(std::move(made), sizes);
  dense->StartCopyThreads();
  return dense;
}

}  // namespace hps
