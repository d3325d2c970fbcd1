#include "network/gpu/gpu_network.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "network/gpu/kernels/short_floats.h"
#include "network/gpu/session_sizes.h"
#include "network/plan/plan_passes.h"

namespace hps {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // NVIDIA's advice for Hopper

template <typename T>
absl::Status CopyToDevice(const char* what, const std::vector<T>& values, const SetUpStream& set_up,
                          DeviceBuffer& to) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  HPS_ASSIGN_OR_RETURN(to, MakeDeviceBuffer(what, bytes.size()));
  return set_up.Copy(bytes, to.data(), what);
}

// To free what a device that hangs may still use would wait for ever.
template <typename T>
void LeakIfLate(const absl::Status& set_up, std::unique_ptr<T>& made) {
  if (absl::IsDeadlineExceeded(set_up)) (void)made.release();
}

bool HasShortElements(DenseMath math) {
  return math == DenseMath::kFloat16 || math == DenseMath::kBfloat16;
}

std::vector<uint16_t> Shortened(const std::vector<float>& values, DenseMath math) {
  std::vector<uint16_t> shortened;
  shortened.reserve(values.size());
  for (const float value : values) {
    shortened.push_back(math == DenseMath::kFloat16 ? std::bit_cast<uint16_t>(ToFloat16(value))
                                                    : std::bit_cast<uint16_t>(ToBfloat16(value)));
  }
  return shortened;
}

std::vector<OnnxElement> ElementsOfBuffers(const DensePlan& plan, DenseMath math) {
  std::vector<OnnxElement> elements(plan.buffers.size(), OnnxElement::kFloat32);
  if (!HasShortElements(math)) return elements;
  const std::vector<bool> stays = Float32Buffers(plan);
  const OnnxElement shortened =
      math == DenseMath::kFloat16 ? OnnxElement::kFloat16 : OnnxElement::kBfloat16;
  for (size_t b = 0; b < elements.size(); ++b)
    if (!stays[b]) elements[b] = shortened;
  return elements;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuNetwork>> GpuNetwork::Make(DensePlan plan,
                                                             const DeviceDenseOptions& options) {
  if (plan.inputs.size() > kStepInputsMax) {
    return absl::UnimplementedError(absl::StrCat(
        "it has ", plan.inputs.size(), " inputs; on the GPU the maximum is ", kStepInputsMax));
  }
  std::unique_ptr<GpuNetwork> network(new GpuNetwork(std::move(plan), options));
  const absl::Status set_up = network->SetUp();
  LeakIfLate(set_up, network);
  HPS_RETURN_IF_ERROR(set_up);
  return network;
}

absl::Status GpuNetwork::SetUp() {
  HPS_ASSIGN_OR_RETURN(cublas_, TheCublas());
  HPS_RETURN_IF_ERROR(CheckGpuDevice(options_.device));
  const DeviceScope scope(options_.device);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(CublasStatus(cublas_->create(&handle_), "cuBLASLt"));
  constexpr const char* kWeights = "weights of a dense network";
  HPS_ASSIGN_OR_RETURN(const SetUpStream set_up, SetUpStream::Make());
  HPS_RETURN_IF_ERROR(CopyToDevice(kWeights, plan_.weights, set_up, weights_));
  if (HasShortElements(options_.math)) {
    HPS_RETURN_IF_ERROR(
        CopyToDevice(kWeights, Shortened(plan_.weights, options_.math), set_up, short_weights_));
  }
  buffer_elements_ = ElementsOfBuffers(plan_, options_.math);
  return CopyToDevice("indices of a dense network", plan_.indices, set_up, indices_);
}

GpuNetwork::~GpuNetwork() {
  if (handle_ == nullptr) return;
  const DeviceScope scope(options_.device);
  (void)cublas_->destroy(handle_);
  weights_ = DeviceBuffer();
  short_weights_ = DeviceBuffer();
  indices_ = DeviceBuffer();
}

absl::StatusOr<std::unique_ptr<GpuNetworkSession>> GpuNetwork::NewSession() {
  return NewSession(options_.batch_max);
}

absl::StatusOr<std::unique_ptr<GpuNetworkSession>> GpuNetwork::NewSession(uint32_t batch_max) {
  const DeviceScope scope(options_.device);
  HPS_RETURN_IF_ERROR(scope.Check());
  std::unique_ptr<GpuNetworkSession> session(new GpuNetworkSession(*this));
  const absl::Status set_up = session->SetUp(batch_max);
  LeakIfLate(set_up, session);
  HPS_RETURN_IF_ERROR(set_up);
  return session;
}

absl::Status GpuNetworkSession::SetUp(uint32_t samples) {
  const DensePlan& plan = network_.plan_;
  const uint32_t batch_max = std::bit_ceil(std::max(1U, samples));
  const auto bytes = [batch_max](int64_t elements) {
    return static_cast<uint64_t>(elements) * batch_max * sizeof(float);
  };
  HPS_ASSIGN_OR_RETURN(set_up_, SetUpStream::Make());
  HPS_ASSIGN_OR_RETURN(arena_,
                       MakeDeviceBuffer("buffers of a dense network", bytes(plan.arena_elements)));
  HPS_ASSIGN_OR_RETURN(padded_,
                       MakeDeviceBuffer("buffers of a dense network", bytes(plan.padded_elements)));
  HPS_ASSIGN_OR_RETURN(workspace_, MakeDeviceBuffer("workspace of cuBLASLt", kWorkspaceBytes));
  HPS_ASSIGN_OR_RETURN(arguments_,
                       MakeDeviceBuffer("arguments of a dense network", sizeof(RunArguments)));
  if (padded_.bytes() > 0) {
    HPS_RETURN_IF_ERROR(
        CudaStatus(cudaMemsetAsync(padded_.data(), 0, padded_.bytes(), set_up_.get()),
                   "zeros of a dense network"));
  }
  // Loads the kernel; else the first run would.
  HPS_RETURN_IF_ERROR(LaunchSetArguments({}, 0, arguments_.at<RunArguments>(0), set_up_.get()));
  const GpuPlanPlace place{
      .plan = &plan,
      .weights = network_.weights_.at<float>(0),
      .short_weights = network_.short_weights_.data(),
      .buffer_elements = &network_.buffer_elements_,
      .indices = network_.indices_.at<int32_t>(0),
      .arena = arena_.data(),
      .padded = padded_.data(),
      .batch_max = batch_max,
      .arguments = arguments_.at<RunArguments>(0),
      .products = {.cublas = network_.cublas_,
                   .handle = network_.handle_,
                   .workspace = {.data = workspace_.data(), .bytes = workspace_.bytes()},
                   .choices = &network_.gemm_choices_,
                   .set_up = &set_up_},
      .set_up = &set_up_,
      .math = network_.options_.math,
  };
  for (uint32_t size = 1; size != 0 && size <= batch_max; size *= 2) {
    HPS_ASSIGN_OR_RETURN(GpuBatch batch, GpuBatch::Make(place, size));
    batches_.push_back(std::move(batch));
  }
  // The zeros are set before another stream may run.
  return set_up_.Wait("set-up of a dense network");
}

absl::StatusOr<GpuBatch*> GpuNetworkSession::BatchOf(uint32_t batch) {
  if (batch == 0 || batch > batches_.back().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", batch, " samples; possible are 1 to ", batches_.back().size()));
  }
  return &batches_[static_cast<size_t>(std::bit_width(batch - 1))];
}

absl::Status GpuNetworkSession::Run(uint32_t batch, std::span<const std::byte* const> inputs,
                                    cudaStream_t stream) {
  HPS_CHECK(inputs.size() == network_.plan_.inputs.size());
  HPS_ASSIGN_OR_RETURN(const GpuBatch* const sized, BatchOf(batch));
  RunArguments arguments{.batch = batch};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::bit_cast<uintptr_t>(inputs[i]) % kInputAlignment != 0) {
      return absl::InvalidArgumentError(absl::StrCat("input '", network_.plan_.inputs[i].name,
                                                     "' does not begin at a multiple of ",
                                                     kInputAlignment, " bytes"));
    }
    arguments.inputs[i] = inputs[i];
  }
  const DeviceScope scope(network_.options_.device);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(LaunchSetArguments(arguments, static_cast<uint32_t>(inputs.size()),
                                         arguments_.at<RunArguments>(0), stream));
  HPS_RETURN_IF_ERROR(sized->Launch(stream));
  last_ = sized;
  return absl::OkStatus();
}

const float* GpuNetworkSession::output(size_t i) const {
  HPS_CHECK(last_ != nullptr);
  return last_->output(i);
}

absl::Status GpuNetworkSession::RunPart(uint32_t batch, GpuPart part, cudaStream_t stream) {
  HPS_ASSIGN_OR_RETURN(const GpuBatch* const sized, BatchOf(batch));
  const DeviceScope scope(network_.options_.device);
  HPS_RETURN_IF_ERROR(scope.Check());
  return sized->LaunchPart(part, stream);
}

}  // namespace hps
