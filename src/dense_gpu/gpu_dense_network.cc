#include "dense_gpu/gpu_dense_network.h"

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
#include "dense_gpu/gpu_dense_session.h"
#include "dense_plan/plan_maker.h"
#include "onnx/model.h"

namespace hps {
namespace {

// Threads that help to copy the keys of large batches; a fourth of the cores, at most these.
constexpr size_t kCopyThreadsMax = 4;
// Between the parts of a batch, a helper is still awake.
constexpr Duration kCopyHelperSpin = std::chrono::microseconds(500);

class GpuDenseNetwork final : public DenseNetwork {
 public:
  explicit GpuDenseNetwork(std::unique_ptr<GpuNetwork> network) : network_(std::move(network)) {}

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
    return GpuDenseSession::Make(*network_, copy_teams_.get());
  }

 private:
  const std::unique_ptr<GpuNetwork> network_;
  std::unique_ptr<ForkJoinPool> copy_teams_;  // outlives the threads; null = no helpers
  std::unique_ptr<WorkerPool> copy_threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeGpuDenseNetwork(
    const ModelNetwork& network, const GpuNetworkOptions& options) {
  HPS_ASSIGN_OR_RETURN(
      const OnnxModel model,
      OnnxModel::Parse(AsBytes(std::string_view(network.onnx)), {.bytes_max = INT_MAX}));
  HPS_ASSIGN_OR_RETURN(DensePlan plan, MakeDensePlan(model.graph()));
  HPS_ASSIGN_OR_RETURN(std::unique_ptr<GpuNetwork> made,
                       GpuNetwork::Make(std::move(plan), options));
  auto dense = std::make_unique<GpuDenseNetwork>(std::move(made));
  dense->StartCopyThreads();
  return dense;
}

absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeDeviceDenseNetwork(
    const ModelNetwork& network, const DeviceDenseOptions& options) {
  return MakeGpuDenseNetwork(network, {.device = options.device,
                                       .batch_max = options.batch_max,
                                       .math = options.math,
                                       .row_budget = options.row_budget});
}

}  // namespace hps
