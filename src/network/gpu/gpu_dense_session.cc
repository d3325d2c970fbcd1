#include "network/gpu/gpu_dense_session.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/macros.h"
#include "gpu/cuda_status.h"
#include "network/gpu/kernels/steps.h"
#include "network/onnx/graph.h"

namespace hps {
namespace {

// Of each run, from the end of the one before it. The largest network takes milliseconds, and
// shares the device with the other slots' runs.
constexpr Duration kRunMax = std::chrono::seconds(10);
// Of a run that was given up before.
constexpr Duration kLateRunMax = std::chrono::milliseconds(100);

bool IsAligned(const float* rows) { return std::bit_cast<uintptr_t>(rows) % kInputAlignment == 0; }

uint64_t ValuesOf(const FedInput& input) {
  return input.pooling == RowPooling::kNone ? input.sample_rows : 1;
}

// Rows that go into the network from where they lie.
bool GoesInAsItIs(const FedInput& input) {
  return input.dim > 0 && input.bags.empty() && IsAligned(input.rows) &&
         (input.pooling == RowPooling::kNone || input.sample_rows == 1);
}

// What of an input comes from the host.
std::span<const std::byte> BytesFromHost(const FedInput& input) {
  return input.dim == 0 ? input.sent : std::as_bytes(input.bags);
}

// The kernels count the elements of an input in 32 bits.
absl::Status CheckElements(const OnnxValue& input, uint64_t sample_bytes, uint64_t samples) {
  const uint64_t sample_elements =
      sample_bytes / OnnxElementBytes(static_cast<int32_t>(input.element));
  const uint64_t elements_max = std::numeric_limits<int32_t>::max();
  if (sample_elements == 0 || samples <= elements_max / sample_elements) return absl::OkStatus();
  return absl::OutOfRangeError(
      absl::StrCat("the dense network does not run on the device: its input '", input.name,
                   "' has ", sample_elements, " elements of each of ", samples,
                   " samples; together at most ", elements_max, " can be"));
}

absl::Status CheckSamples(uint64_t samples, uint64_t samples_max) {
  if (samples > 0 && samples <= samples_max) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the dense network failed: ", samples,
                                          " samples; possible are 1 to ", samples_max));
}

bool HasVectors(const FedInput& input) { return input.dim % 4 == 0 && IsAligned(input.rows); }

}  // namespace

absl::StatusOr<std::unique_ptr<DenseSession>> GpuDenseSession::Make(GpuNetwork& network,
                                                                    const SessionSizes& sizes,
                                                                    ForkJoinPool* copy_teams) {
  const DeviceScope scope(network.options().device);
  HPS_RETURN_IF_ERROR(scope.Check());
  std::unique_ptr<GpuDenseSession> session(new GpuDenseSession(network, sizes));
  HPS_RETURN_IF_ERROR(session->SetUp(copy_teams));
  return session;
}

// The network's session comes first: only its set-up can leave work on the device.
absl::Status GpuDenseSession::SetUp(ForkJoinPool* copy_teams) {
  HPS_ASSIGN_OR_RETURN(session_, network_.NewSession(sizes_.run_samples));
  HPS_RETURN_IF_ERROR(LoadBags());
  HPS_ASSIGN_OR_RETURN(room_, GpuRowRoom::Create(network_.options(), copy_teams));
  for (size_t i = 0; i < network_.plan().inputs.size(); ++i) {
    HPS_ASSIGN_OR_RETURN(DeviceBuffer input, MakeDeviceBuffer("a network's input",
                                                              SampleBytes(i) * sizes_.run_samples));
    inputs_.push_back(std::move(input));
  }
  const uint64_t brought_bytes = RowRoom::kPartsMax * sizes_.part_bytes;
  HPS_ASSIGN_OR_RETURN(brought_, MakePinnedBuffer("inputs of a call", brought_bytes));
  HPS_ASSIGN_OR_RETURN(brought_there_, MakeDeviceBuffer("inputs of a call", brought_bytes));
  HPS_ASSIGN_OR_RETURN(outputs_, MakePinnedBuffer("a network's outputs", sizes_.output_bytes));
  while (run_ends_.size() < sizes_.call_runs) {
    HPS_ASSIGN_OR_RETURN(CudaEvent event, MakeEvent());
    run_ends_.push_back(std::move(event));
  }
  return absl::OkStatus();
}

// Leaks what a device that hangs may still use: to free it would wait for ever.
GpuDenseSession::~GpuDenseSession() {
  const DeviceScope scope(network_.options().device);
  if (is_open_ && absl::IsDeadlineExceeded(WaitForEarlierRuns(kRunMax))) {
    (void)session_.release();
    for (DeviceBuffer& input : inputs_) input.Leak();
    brought_.Leak();
    brought_there_.Leak();
    outputs_.Leak();
  }
  session_.reset();
  inputs_.clear();
  brought_ = PinnedBuffer();
  brought_there_ = DeviceBuffer();
  outputs_ = PinnedBuffer();
}

uint64_t GpuDenseSession::SampleBytes(size_t input) const {
  return InputBytes(network_.plan().inputs[input]);
}

uint64_t GpuDenseSession::OutputBytes(size_t output, uint64_t samples) const {
  return hps::OutputBytes(network_.plan().output_views[output]) * samples;
}

// ---- From tensors of the host ----

absl::Status GpuDenseSession::Run(std::span<const DenseTensor> inputs,
                                  std::span<const DenseTensor> outputs) {
  const DensePlan& plan = network_.plan();
  HPS_CHECK(inputs.size() == plan.inputs.size() && outputs.size() == plan.outputs.size());
  const int64_t batch = inputs.empty() ? 0 : inputs.front().dims.front();
  HPS_RETURN_IF_ERROR(CheckShapes(batch, inputs, outputs));
  const auto samples = static_cast<uint32_t>(batch);
  const DeviceScope scope(network_.options().device);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(Begin());
  samples_ = samples;
  pointers_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    HPS_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(inputs_[i].data(), inputs[i].data, SampleBytes(i) * samples,
                                   cudaMemcpyHostToDevice, stream_),
                   "copy of a network's input"));
    pointers_.push_back(inputs_[i].data());
  }
  HPS_RETURN_IF_ERROR(session_->Run(samples, pointers_, stream_));
  HPS_RETURN_IF_ERROR(CopyOutputs({.count = samples}));
  HPS_RETURN_IF_ERROR(MarkEndOfRun());
  to_.clear();
  for (const DenseTensor& output : outputs) to_.push_back(output.data);
  return End(to_);
}

absl::Status GpuDenseSession::CheckShapes(int64_t batch, std::span<const DenseTensor> inputs,
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
  if (all_fit) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      HPS_RETURN_IF_ERROR(
          CheckElements(plan.inputs[i], SampleBytes(i), static_cast<uint64_t>(batch)));
    }
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("the dense network failed: shapes of a run of ", batch,
                                          " samples are not the network's, or it has over ",
                                          network_.options().batch_max, " samples"));
}

// ---- From rows on the device ----

absl::Status GpuDenseSession::RunFromRows(uint32_t samples, std::span<const FedInput> inputs,
                                          std::span<std::byte* const> outputs) {
  HPS_RETURN_IF_ERROR(CheckSamples(samples, sizes_.limits.samples_max));
  HPS_RETURN_IF_ERROR(CheckFed(samples, inputs));
  const DeviceScope scope(network_.options().device);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(Begin());
  samples_ = samples;
  brought_begin_ = 0;
  HPS_RETURN_IF_ERROR(EnqueueRuns({.count = samples}, inputs));
  return End(outputs);
}

absl::Status GpuDenseSession::BeginParts(uint32_t samples) {
  HPS_RETURN_IF_ERROR(CheckSamples(samples, sizes_.limits.parts_total_max));
  const DeviceScope scope(network_.options().device);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_RETURN_IF_ERROR(Begin());
  HPS_ASSIGN_OR_RETURN(stream_, room_->NetworkStream());
  samples_ = samples;
  parts_ = 0;
  return absl::OkStatus();
}

absl::Status GpuDenseSession::EnqueuePart(const SampleRange& part,
                                          std::span<const FedInput> inputs) {
  HPS_CHECK(is_open_ && part.begin + part.count <= samples_);
  HPS_RETURN_IF_ERROR(CheckSamples(part.count, sizes_.limits.part_samples_max));
  HPS_RETURN_IF_ERROR(CheckFed(part.count, inputs));
  const DeviceScope scope(network_.options().device);
  HPS_RETURN_IF_ERROR(scope.Check());
  HPS_ASSIGN_OR_RETURN(stream_, room_->NetworkStream());
  // The part that had this memory, and its events, has ended.
  const size_t turn = parts_ % RowRoom::kPartsMax;
  brought_begin_ = turn * sizes_.part_bytes;
  HPS_RETURN_IF_ERROR(EnqueueRuns(part, inputs));
  part_ends_[turn] = enqueued_;
  ++parts_;
  if (parts_ < RowRoom::kPartsMax) return absl::OkStatus();
  return WaitInCall(part_ends_[parts_ % RowRoom::kPartsMax]);
}

absl::Status GpuDenseSession::EndParts(std::span<std::byte* const> outputs) {
  HPS_CHECK(is_open_);
  return End(outputs);
}

absl::Status GpuDenseSession::EnqueueRuns(const SampleRange& part,
                                          std::span<const FedInput> inputs) {
  const uint64_t run_samples = session_->batch_max();
  for (uint64_t begin = 0; begin < part.count; begin += run_samples) {
    const uint64_t count = std::min(run_samples, part.count - begin);
    Slice({.begin = begin, .count = count}, inputs);
    HPS_RETURN_IF_ERROR(EnqueueRun({.begin = part.begin + begin, .count = count}));
  }
  return absl::OkStatus();
}

// What Slice has set.
absl::Status GpuDenseSession::EnqueueRun(const SampleRange& run) {
  HPS_RETURN_IF_ERROR(Feed(run.count));
  HPS_RETURN_IF_ERROR(session_->Run(static_cast<uint32_t>(run.count), pointers_, stream_));
  HPS_RETURN_IF_ERROR(CopyOutputs(run));
  return MarkEndOfRun();
}

// Sets fed_ and pooled_.
void GpuDenseSession::Slice(const SampleRange& run, std::span<const FedInput> inputs) {
  fed_.assign(inputs.begin(), inputs.end());
  pooled_.clear();
  for (size_t i = 0; i < fed_.size(); ++i) {
    FedInput& input = fed_[i];
    if (input.dim == 0) {
      const uint64_t bytes = SampleBytes(i);
      input.sent = input.sent.subspan(run.begin * bytes, run.count * bytes);
      continue;
    }
    if (!input.bags.empty()) {
      input.bags = input.bags.subspan(run.begin, run.count);
    } else if (input.rows != nullptr) {
      input.rows += run.begin * input.sample_rows * input.dim;
    }
    if (!GoesInAsItIs(input)) pooled_.push_back(i);
  }
}

absl::Status GpuDenseSession::CheckFed(uint64_t samples, std::span<const FedInput> inputs) const {
  HPS_CHECK(inputs.size() == inputs_.size());
  uint64_t brought_bytes = 0;
  const uint64_t run_samples = std::min<uint64_t>(samples, session_->batch_max());
  for (size_t i = 0; i < inputs.size(); ++i)
    HPS_RETURN_IF_ERROR(CheckElements(network_.plan().inputs[i], SampleBytes(i), run_samples));
  bool all_fit = true;
  for (size_t i = 0; all_fit && i < inputs.size(); ++i) {
    const FedInput& input = inputs[i];
    const uint64_t bytes = SampleBytes(i);
    brought_bytes += BytesFromHost(input).size();
    if (input.dim == 0) {
      all_fit = input.sent.size() == bytes * samples;
      continue;
    }
    all_fit = ValuesOf(input) * input.dim * sizeof(float) == bytes &&
              network_.plan().inputs[i].element == OnnxElement::kFloat32 &&
              (input.bags.empty() || input.bags.size() == samples);
  }
  if (all_fit && brought_bytes <= samples * sizes_.sample_bytes) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the dense network failed: rows or inputs of ", samples,
                                          " samples do not have its shapes"));
}

// Gives everything that the run brings from the host its place, from brought_begin_ on: first the
// steps of the pooling. Returns the bytes.
uint64_t GpuDenseSession::LayOut() {
  brought_at_.clear();
  uint64_t bytes = AlignedForInput(pooled_.size() * sizeof(StepBags));
  for (const FedInput& input : fed_) {
    brought_at_.push_back(brought_begin_ + bytes);
    bytes += AlignedForInput(BytesFromHost(input).size());
  }
  return bytes;
}

// Sets pointers_, and has all inputs of the run made there.
absl::Status GpuDenseSession::Feed(uint64_t count) {
  const uint64_t brought_bytes = LayOut();
  HPS_CHECK(brought_begin_ + brought_bytes <= brought_.bytes());
  pointers_.clear();
  for (size_t i = 0; i < fed_.size(); ++i) {
    const std::span<const std::byte> bytes = BytesFromHost(fed_[i]);
    if (!bytes.empty()) std::memcpy(brought_.data() + brought_at_[i], bytes.data(), bytes.size());
    if (fed_[i].dim == 0) {
      pointers_.push_back(brought_there_.data() + brought_at_[i]);
    } else if (GoesInAsItIs(fed_[i])) {
      pointers_.push_back(std::as_bytes(std::span(fed_[i].rows, 1)).data());
    } else {
      pointers_.push_back(inputs_[i].data());
    }
  }
  HPS_RETURN_IF_ERROR(PoolRows(count, brought_bytes));
  brought_begin_ += brought_bytes;
  return absl::OkStatus();
}

absl::Status GpuDenseSession::PoolRows(uint64_t count, uint64_t brought_bytes) {
  std::byte* const host = brought_.data() + brought_begin_;
  uint64_t elements_max = 0;
  for (size_t p = 0; p < pooled_.size(); ++p) {
    const size_t i = pooled_[p];
    const FedInput& input = fed_[i];
    const StepBags step = {
        .rows = input.rows,
        .bags = input.bags.empty() ? nullptr : brought_there_.at<const BagPlace>(brought_at_[i]),
        .output = inputs_[i].at<float>(0),
        .dim = input.dim,
        .samples = static_cast<uint32_t>(count),
        .sample_rows = static_cast<uint32_t>(input.sample_rows),
        .pooling = input.pooling,
        .has_vectors = HasVectors(input)};
    std::memcpy(host + p * sizeof(StepBags), &step, sizeof(step));
    const uint64_t elements = count * ValuesOf(input) * input.dim;
    elements_max = std::max(elements_max, elements / (step.has_vectors ? 4 : 1));
  }
  if (brought_bytes > 0) {
    HPS_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(brought_there_.data() + brought_begin_, host,
                                                   brought_bytes, cudaMemcpyHostToDevice, stream_),
                                   "copy of a run's inputs"));
  }
  if (pooled_.empty()) return absl::OkStatus();
  return LaunchBags(brought_there_.at<const StepBags>(brought_begin_),
                    static_cast<uint32_t>(pooled_.size()), elements_max, stream_);
}

// ---- Both ----

// The memory of an earlier call that failed may still be in use.
absl::Status GpuDenseSession::Begin() {
  if (is_open_) {
    const absl::Status passed = WaitForEarlierRuns(is_late_ ? kLateRunMax : kRunMax);
    is_late_ = absl::IsDeadlineExceeded(passed);
    if (is_late_) return absl::UnavailableError("the device has not ended an earlier run yet");
    HPS_RETURN_IF_ERROR(passed);
  }
  is_open_ = true;
  stream_ = static_cast<cudaStream_t>(room_->stream().handle);
  enqueued_ = ended_ = 0;
  return absl::OkStatus();
}

absl::Status GpuDenseSession::MarkEndOfRun() {
  HPS_CHECK(enqueued_ - ended_ < run_ends_.size());
  HPS_RETURN_IF_ERROR(CudaStatus(
      cudaEventRecord(run_ends_[enqueued_ % run_ends_.size()].get(), stream_), "end of a run"));
  ++enqueued_;
  return absl::OkStatus();
}

// Waits for runs [0, end), whose ends are marked, for each at most `run_max`.
absl::Status GpuDenseSession::WaitForRuns(size_t end, Duration run_max) {
  for (; ended_ < end; ++ended_) {
    HPS_RETURN_IF_ERROR(WaitFor(run_ends_[ended_ % run_ends_.size()].get(),
                                DeadlineAfter(RealClock(), run_max), "a dense network on the GPU"));
  }
  return absl::OkStatus();
}

// And for what a call that failed left behind its last whole run.
absl::Status GpuDenseSession::WaitForEarlierRuns(Duration run_max) {
  HPS_RETURN_IF_ERROR(WaitForRuns(enqueued_, run_max));
  return room_->WaitUntilIdle(run_max, "an earlier run");
}

absl::Status GpuDenseSession::WaitInCall(size_t end) {
  const absl::Status passed = WaitForRuns(end, kRunMax);
  is_late_ = absl::IsDeadlineExceeded(passed);
  return passed;
}

// To the pinned memory that has the outputs of the whole call.
absl::Status GpuDenseSession::CopyOutputs(const SampleRange& run) {
  uint64_t at = 0;
  for (size_t i = 0; i < network_.plan().output_views.size(); ++i) {
    HPS_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(outputs_.data() + at + OutputBytes(i, run.begin), session_->output(i),
                        OutputBytes(i, run.count), cudaMemcpyDeviceToHost, stream_),
        "copy of a network's output"));
    at += AlignedForInput(OutputBytes(i, samples_));
  }
  return absl::OkStatus();
}

// Waits for all runs of the call, and hands their outputs out.
absl::Status GpuDenseSession::End(std::span<std::byte* const> outputs) {
  HPS_CHECK(outputs.size() == network_.plan().outputs.size());
  HPS_RETURN_IF_ERROR(WaitInCall(enqueued_));
  is_open_ = false;
  uint64_t at = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const uint64_t bytes = OutputBytes(i, samples_);
    std::memcpy(outputs[i], outputs_.data() + at, bytes);
    at += AlignedForInput(bytes);
  }
  return absl::OkStatus();
}

}  // namespace hps
