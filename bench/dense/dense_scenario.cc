// The dense network of DLRM on a GPU, in float32, TF32, float16 and bfloat16: the whole network
// against its matrix products alone; and its other steps alone.
//
// 26 tables of width 128, layers of Criteo's (512-256-128 below, 1024-1024-512-256-1 above). Rows
// and dense numbers are on the device. tools/bench_dense_torch.py times the same with PyTorch.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/macros.h"
#include "bench/measure.h"
#include "bench/scenario.h"
#include "gpu/cuda_status.h"
#include "network/gpu/gpu_network.h"
#include "network/onnx/model.h"
#include "network/plan/plan_maker.h"
#include "network/plan/test_networks.h"

namespace hps::bench {
namespace {

constexpr int64_t kTables = 26;
constexpr int64_t kWidth = 128;
constexpr int64_t kDense = 13;

absl::StatusOr<DensePlan> CriteoPlan() {
  const std::string onnx = DlrmNetwork({.dense = kDense,
                                        .tables = kTables,
                                        .width = kWidth,
                                        .bottom = {512, 256},
                                        .top = {1024, 1024, 512, 256}})
                               .Bytes();
  HPS_ASSIGN_OR_RETURN(const OnnxModel model,
                       OnnxModel::Parse(AsBytes(std::string_view(onnx)), {}));
  return MakeDensePlan(model.graph());
}

struct DestroyTimer {
  void operator()(cudaEvent_t event) const { (void)cudaEventDestroy(event); }
};
using Timer = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyTimer>;

absl::StatusOr<Timer> MakeTimer() {
  cudaEvent_t event = nullptr;
  HPS_RETURN_IF_ERROR(CudaStatus(cudaEventCreate(&event), "timer"));
  return Timer(event);
}

// Median microseconds of one of `calls` calls that follow one another on the stream.
template <typename Call>
absl::StatusOr<double> TimeOf(cudaStream_t stream, int calls, size_t runs, Call call) {
  HPS_ASSIGN_OR_RETURN(const Timer begin, MakeTimer());
  HPS_ASSIGN_OR_RETURN(const Timer end, MakeTimer());
  std::vector<double> times;
  for (size_t run = 0; run < runs + 2; ++run) {
    HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(begin.get(), stream), "timer"));
    for (int i = 0; i < calls; ++i) HPS_RETURN_IF_ERROR(call());
    HPS_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(end.get(), stream), "timer"));
    HPS_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(end.get()), "wait for the network"));
    float ms = 0;
    HPS_RETURN_IF_ERROR(CudaStatus(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timer"));
    if (run >= 2) times.push_back(double{ms} * 1000 / calls);  // the first ones warm up
  }
  return Median(times);
}

struct DestroyRecorded {
  void operator()(cudaGraphExec_t graph) const { (void)cudaGraphExecDestroy(graph); }
};
using Recorded = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyRecorded>;

// The steps of one kind as a CUDA graph: launches cost them no more than they cost the network.
absl::StatusOr<Recorded> RecordPart(GpuNetworkSession& session, uint32_t batch, GpuPart part,
                                    cudaStream_t stream) {
  HPS_RETURN_IF_ERROR(
      CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording"));
  const absl::Status enqueued = session.RunPart(batch, part, stream);
  cudaGraph_t graph = nullptr;
  HPS_RETURN_IF_ERROR(CudaStatus(cudaStreamEndCapture(stream, &graph), "recording"));
  HPS_RETURN_IF_ERROR(enqueued);
  cudaGraphExec_t made = nullptr;
  const absl::Status status = CudaStatus(cudaGraphInstantiate(&made, graph, 0), "graph");
  (void)cudaGraphDestroy(graph);
  HPS_RETURN_IF_ERROR(status);
  return Recorded(made);
}

const char* NameOf(DenseMath math) {
  switch (math) {
    case DenseMath::kTf32:
      return "tf32";
    case DenseMath::kFloat16:
      return "float16";
    case DenseMath::kBfloat16:
      return "bfloat16";
    default:
      return "float32";
  }
}

absl::StatusOr<std::vector<DeviceBuffer>> MakeInputs(const DensePlan& plan, uint32_t batch) {
  std::vector<DeviceBuffer> buffers;
  for (const OnnxValue& input : plan.inputs) {
    const uint64_t bytes = uint64_t{batch} * static_cast<uint64_t>(input.dims[1]) * sizeof(float);
    HPS_ASSIGN_OR_RETURN(DeviceBuffer buffer, MakeDeviceBuffer("inputs", bytes));
    // 0x3c3c3c3c is 0.0115: times do not depend on the values.
    HPS_RETURN_IF_ERROR(CudaStatus(cudaMemset(buffer.data(), 0x3c, bytes), "inputs"));
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

absl::StatusOr<Result> MeasureBatch(GpuNetwork& network, GpuNetworkSession& session, uint32_t batch,
                                    size_t runs) {
  HPS_ASSIGN_OR_RETURN(const std::vector<DeviceBuffer> inputs, MakeInputs(network.plan(), batch));
  std::vector<const std::byte*> pointers;
  for (const DeviceBuffer& input : inputs) pointers.push_back(input.data());
  HPS_ASSIGN_OR_RETURN(const CudaStream stream, MakeStream(StreamPriority::kHigh));
  HPS_RETURN_IF_ERROR(CudaStatus(cudaDeviceSynchronize(), "set-up"));
  const int calls = batch > 10'000 ? 5 : 20;
  HPS_ASSIGN_OR_RETURN(const double whole_us, TimeOf(stream.get(), calls, runs, [&] {
                         return session.Run(batch, pointers, stream.get());
                       }));
  const auto time_of = [&](GpuPart part) -> absl::StatusOr<double> {
    HPS_ASSIGN_OR_RETURN(const Recorded steps, RecordPart(session, batch, part, stream.get()));
    return TimeOf(stream.get(), calls, runs, [&] {
      return CudaStatus(cudaGraphLaunch(steps.get(), stream.get()), "a part of the network");
    });
  };
  HPS_ASSIGN_OR_RETURN(const double products_us, time_of(GpuPart::kProducts));
  HPS_ASSIGN_OR_RETURN(const double pairs_us, time_of(GpuPart::kPairs));
  HPS_ASSIGN_OR_RETURN(const double rest_us, time_of(GpuPart::kRest));
  Result result{.name = "network"};
  result.params = {{"batch", absl::StrCat(batch)}, {"math", NameOf(network.options().math)}};
  result.unit = "us";
  result.figure = whole_us;
  result.bound = products_us;
  result.ratio = whole_us / products_us;
  result.target = "<= 1.43";  // the products are at least 0.7 of the time
  result.runs = runs;
  result.measured = {
      {"million samples/s", batch / whole_us}, {"pairs_us", pairs_us}, {"rest_us", rest_us}};
  return result;
}

}  // namespace

absl::StatusOr<std::vector<Result>> RunDenseScenario(const Options& options) {
  const int device = std::max(options.device, 0);
  HPS_RETURN_IF_ERROR(CheckGpuDevice(device));
  const DeviceScope scope(device);
  HPS_RETURN_IF_ERROR(scope.Check());
  const std::vector<uint32_t> batches = options.quick
                                            ? std::vector<uint32_t>{64, 1024}
                                            : std::vector<uint32_t>{1024, 4096, 16'384, 65'536};
  std::vector<Result> results;
  for (const DenseMath math :
       {DenseMath::kFloat32, DenseMath::kTf32, DenseMath::kFloat16, DenseMath::kBfloat16}) {
    HPS_ASSIGN_OR_RETURN(DensePlan plan, CriteoPlan());
    HPS_ASSIGN_OR_RETURN(
        const std::unique_ptr<GpuNetwork> network,
        GpuNetwork::Make(std::move(plan),
                         {.device = device, .batch_max = batches.back(), .math = math}));
    HPS_ASSIGN_OR_RETURN(const std::unique_ptr<GpuNetworkSession> session, network->NewSession());
    for (const uint32_t batch : batches) {
      HPS_ASSIGN_OR_RETURN(Result result,
                           MeasureBatch(*network, *session, batch, options.quick ? 3 : 15));
      results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace hps::bench
