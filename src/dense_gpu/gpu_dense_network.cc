#include "dense_gpu/gpu_dense_network.h"

#include <climits>
#include <utility>

#include "base/bytes.h"
#include "base/macros.h"
#include "dense_gpu/gpu_dense_session.h"
#include "dense_plan/plan_maker.h"
#include "onnx/model.h"

namespace hps {
namespace {

class GpuDenseNetwork final : public DenseNetwork {
 public:
  explicit GpuDenseNetwork(std::unique_ptr<GpuNetwork> network) : network_(std::move(network)) {}

  std::span<const OnnxValue> inputs() const override { return network_->plan().inputs; }
  std::span<const OnnxValue> outputs() const override { return network_->plan().outputs; }
  absl::StatusOr<std::unique_ptr<DenseSession>> NewSession() override {
    return GpuDenseSession::Make(*network_);
  }

 private:
  const std::unique_ptr<GpuNetwork> network_;
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
  return std::make_unique<GpuDenseNetwork>(std::move(made));
}

absl::StatusOr<std::unique_ptr<DenseNetwork>> MakeDeviceDenseNetwork(
    const ModelNetwork& network, const DeviceDenseOptions& options) {
  return MakeGpuDenseNetwork(network, {.device = options.device,
                                       .batch_max = options.batch_max,
                                       .math = options.math,
                                       .row_budget = options.row_budget});
}

}  // namespace hps
