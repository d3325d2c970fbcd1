#include "dense_gpu/gpu_dense_network.h"

#include <algorithm>
#include <climits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "dense_plan/plan_maker.h"
#include "l1_gpu/cuda_resources.h"
#include "l1_gpu/cuda_status.h"
#include "onnx/model.h"

namespace hps {
namespace {

class GpuDenseSession final : public DenseSession {
 public:
  static absl::StatusOr<std::unique_ptr<DenseSession>> Make(GpuNetwork& network) {
    const DeviceScope scope(network.options().device);
    HPS_RETURN_IF_ERROR(scope.Check());
    std::unique_ptr<GpuDenseSession> session(new GpuDenseSession(network));
    HPS_ASSIGN_OR_RETURN(session->session_, network.NewSession());
    HPS_ASSIGN_OR_RETURN(session->stream_, MakeStream(StreamPriority::kHigh));
    for (size_t i = 0; i < network.plan().inputs.size(); ++i) {
      const uint64_t bytes = session->SampleBytes(i) * network.options().batch_max;
      HPS_ASSIGN_OR_RETURN(DeviceBuffer buffer, MakeDeviceBuffer("a network's input", bytes));
      session->pointers_.push_back(buffer.data());
      session->inputs_.push_back(std::move(buffer));
    }
    return session;
  }

  absl::Status Run(std::span<const DenseTensor> inputs,
                   std::span<const DenseTensor> outputs) override {
    const DensePlan& plan = network_.plan();
    HPS_CHECK(inputs.size() == plan.inputs.size() && outputs.size() == plan.outputs.size());
    const int64_t batch = inputs.empty() ? 0 : inputs.front().dims.front();
    HPS_RETURN_IF_ERROR(CheckShapes(batch, inputs, outputs));
    const DeviceScope scope(network_.options().device);
    HPS_RETURN_IF_ERROR(scope.Check());
    for (size_t i = 0; i < inputs.size(); ++i) {
      HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(inputs_[i].data(), inputs[i].data,
                                                     SampleBytes(i) * static_cast<uint64_t>(batch),
                                                     cudaMemcpyHostToDevice, stream_.get()),
                                     "copy of a network's input"));
    }
    HPS_RETURN_IF_ERROR(session_->Run(static_cast<uint32_t>(batch), pointers_, stream_.get()));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const auto elements = static_cast<uint64_t>(plan.output_views[i].ElementCount() * batch);
      HPS_RETURN_IF_ERROR(
          CudaStatus(cudaMemcpyAsync(outputs[i].data, session_->output(i), elements * sizeof(float),
                                     cudaMemcpyDeviceToHost, stream_.get()),
                     "copy of a network's output"));
    }
    return CudaStatus(cudaStreamSynchronize(stream_.get()), "a dense network on the GPU");
  }

 private:
  explicit GpuDenseSession(GpuNetwork& network) : network_(network) {}

  uint64_t SampleBytes(size_t input) const {
    const OnnxValue& value = network_.plan().inputs[input];
    uint64_t bytes = OnnxElementBytes(static_cast<int32_t>(value.element));
    for (size_t d = 1; d < value.dims.size(); ++d) bytes *= static_cast<uint64_t>(value.dims[d]);
    return bytes;
  }

  absl::Status CheckShapes(int64_t batch, std::span<const DenseTensor> inputs,
                           std::span<const DenseTensor> outputs) const {
    const auto fits = [batch](std::span<const int64_t> dims, std::span<const int64_t> sample,
                              int64_t rows) {
      return !dims.empty() && dims.size() == sample.size() && dims.front() == batch * rows &&
             std::equal(dims.begin() + 1, dims.end(), sample.begin() + 1);
    };
    const DensePlan& plan = network_.plan();
    bool all_fit = batch > 0 && batch <= int64_t{network_.options().batch_max};
    for (size_t i = 0; i < inputs.size(); ++i)
      all_fit = all_fit && fits(inputs[i].dims, plan.inputs[i].dims, 1);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const std::vector<int64_t>& dims = plan.output_views[i].dims;
      all_fit = all_fit && fits(outputs[i].dims, dims, dims.front());
    }
    if (all_fit) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("the dense network failed: shapes of a run of ", batch,
                                            " samples are not the network's, or it has over ",
                                            network_.options().batch_max, " samples"));
  }

  GpuNetwork& network_;
  std::unique_ptr<GpuNetworkSession> session_;
  CudaStream stream_;
  std::vector<DeviceBuffer> inputs_;
  std::vector<const std::byte*> pointers_;
};

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
  return MakeGpuDenseNetwork(network, {.device = options.device, .batch_max = options.batch_max});
}

}  // namespace hps
