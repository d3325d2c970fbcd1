// The executor on the device against the plan run on the host.
#include "network/gpu/gpu_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "gpu/cuda_status.h"
#include "network/gpu/kernels/short_floats.h"
#include "network/onnx/model.h"
#include "network/plan/plan_maker.h"
#include "network/plan/test_networks.h"
#include "network/plan/test_plan_runner.h"
#include "network/plan/test_real_model.h"

namespace hps {
namespace {

using ::testing::HasSubstr;
using ::testing::TestWithParam;
using ::testing::ValuesIn;

DensePlan PlanOf(const TestModel& model) {
  const std::string bytes = model.Bytes();
  const auto read = OnnxModel::Parse(AsBytes(std::string_view(bytes)), {});
  EXPECT_TRUE(read.ok()) << read.status();
  auto plan = MakeDensePlan(read->graph());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

void SkipWithoutGpu() {
  const absl::Status gpu = CheckGpuDevice(0);
  if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.message();
}

// Copies values to the device; behind them lie NaNs, which no kernel may read.
DeviceBuffer ToDevice(std::vector<std::byte> bytes) {
  bytes.resize(bytes.size() + 16384, std::byte{0xFF});
  auto buffer = MakeDeviceBuffer("test", bytes.size());
  EXPECT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(cudaMemcpy(buffer->data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
            cudaSuccess);
  return *std::move(buffer);
}

// Runs the network; returns its outputs.
std::vector<std::vector<float>> RunOnGpu(GpuNetworkSession& session, const DensePlan& plan,
                                         int64_t batch,
                                         const std::vector<std::vector<float>>& inputs) {
  std::vector<DeviceBuffer> buffers;
  std::vector<const std::byte*> pointers;
  for (size_t i = 0; i < inputs.size(); ++i) {
    buffers.push_back(ToDevice(InputBytes(plan.inputs[i], inputs[i])));
    pointers.push_back(buffers.back().data());
  }
  const auto stream = MakeStream(StreamPriority::kHigh);
  EXPECT_TRUE(stream.ok());
  const absl::Status status = session.Run(static_cast<uint32_t>(batch), pointers, stream->get());
  EXPECT_TRUE(status.ok()) << status;
  std::vector<std::vector<float>> outputs;
  for (size_t i = 0; i < plan.output_views.size() && status.ok(); ++i) {
    std::vector<float>& output =
        outputs.emplace_back(static_cast<size_t>(plan.output_views[i].ElementCount() * batch), NAN);
    EXPECT_EQ(cudaMemcpyAsync(output.data(), session.output(i), output.size() * sizeof(float),
                              cudaMemcpyDeviceToHost, stream->get()),
              cudaSuccess);
  }
  const cudaError_t error = cudaStreamSynchronize(stream->get());
  EXPECT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
  return outputs;
}

// How far scores of 0 to 1 may be from those in float32: docs/ctr_models.md states these bounds.
constexpr std::pair<DenseMath, double> kScoreBounds[] = {{DenseMath::kFloat32, 1e-5},
                                                         {DenseMath::kTf32, 1e-3},
                                                         {DenseMath::kFloat16, 1e-3},
                                                         {DenseMath::kBfloat16, 8e-3}};

double LargestError(std::span<const float> got, std::span<const float> expected) {
  double largest = 0;
  for (size_t e = 0; e < expected.size(); ++e) {
    const double error = std::fabs(double{got[e]} - double{expected[e]});
    largest = std::max(largest, error / (1 + std::fabs(double{expected[e]})));
  }
  return largest;
}

// Runs the network and compares every element with the host's.
void CheckRun(const DensePlan& plan, GpuNetworkSession& session, int64_t batch, double bound) {
  SCOPED_TRACE("batch " + std::to_string(batch));
  const std::vector<std::vector<float>> inputs =
      RandomInputs(plan, batch, static_cast<uint32_t>(batch));
  const std::vector<std::vector<float>> expected = PlanRunner(plan).Run(batch, inputs);
  const std::vector<std::vector<float>> got = RunOnGpu(session, plan, batch, inputs);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size());
    std::printf("largest error %.2e of %.0e\n", LargestError(got[i], expected[i]), bound);
    for (size_t e = 0; e < got[i].size(); ++e) {
      ASSERT_NEAR(got[i][e], expected[i][e], bound * (1 + std::fabs(expected[i][e])))
          << "output " << i << ", element " << e;
    }
  }
}

std::unique_ptr<GpuNetwork> Make(const DensePlan& plan, const DeviceDenseOptions& options) {
  auto network = GpuNetwork::Make(plan, options);
  EXPECT_TRUE(network.ok()) << network.status();
  return network.ok() ? *std::move(network) : nullptr;
}

class GpuNetworkTest : public TestWithParam<TestNetwork> {
 protected:
  void SetUp() override { SkipWithoutGpu(); }
};

TEST_P(GpuNetworkTest, ComputesWhatTheHostComputes) {
  const DensePlan plan = PlanOf(GetParam().make());
  const auto network = Make(plan, {.batch_max = 64});
  ASSERT_NE(network, nullptr);
  const auto session = network->NewSession();
  ASSERT_TRUE(session.ok()) << session.status();
  for (const int64_t batch : {1, 3, 64, 33, 2}) CheckRun(plan, **session, batch, 2e-5);
}

// Values between the layers have 16 bits: each is rounded by 2^-11 or 2^-8 of itself.
TEST_P(GpuNetworkTest, ComputesWithinItsBoundIn16Bits) {
  const DensePlan plan = PlanOf(GetParam().make());
  for (const auto& [math, bound] :
       {std::pair{DenseMath::kFloat16, 1e-2}, std::pair{DenseMath::kBfloat16, 8e-2}}) {
    SCOPED_TRACE(math == DenseMath::kFloat16 ? "float16" : "bfloat16");
    const auto network = Make(plan, {.batch_max = 64, .math = math});
    ASSERT_NE(network, nullptr);
    const auto session = network->NewSession();
    ASSERT_TRUE(session.ok()) << session.status();
    for (const int64_t batch : {1, 33, 2}) CheckRun(plan, **session, batch, bound);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GpuNetworkTest, ValuesIn(TestNetworks()),
                         [](const auto& of) { return std::string(of.param.name); });

class GpuNetworksTest : public testing::Test {
 protected:
  void SetUp() override { SkipWithoutGpu(); }
};

TEST_F(GpuNetworksTest, RandomNetworks) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const DensePlan plan = PlanOf(RandomNetwork(seed));
    const auto network = Make(plan, {.batch_max = 8});
    ASSERT_NE(network, nullptr);
    const auto session = network->NewSession();
    ASSERT_TRUE(session.ok()) << session.status();
    for (const int64_t batch : {5, 1}) CheckRun(plan, **session, batch, 1e-4);
  }
}

// Scales the weights of each layer so that values stay about as large from layer to layer.
void NormalizeWeights(DensePlan& plan) {
  for (const PlanStep& step : plan.steps) {
    const auto* const gemm = std::get_if<GemmStep>(&step);
    if (gemm == nullptr) continue;
    const std::span<float> weights =
        std::span(plan.weights)
            .subspan(static_cast<size_t>(gemm->weights), static_cast<size_t>(gemm->n * gemm->k));
    double squares = 0;
    for (const float weight : weights) squares += double{weight} * double{weight};
    const double scale = std::sqrt(static_cast<double>(gemm->n) / squares);
    for (float& weight : weights) weight = static_cast<float>(weight * scale);
  }
}

// The widths of a real model, whose GEMMs take the fast kernels.
TEST_F(GpuNetworksTest, DlrmOfRealWidths) {
  DensePlan plan = PlanOf(DlrmNetwork({.dense = 13,
                                       .tables = 26,
                                       .width = 128,
                                       .bottom = {512, 256},
                                       .top = {1024, 1024, 512, 256}}));
  NormalizeWeights(plan);
  for (const auto& [math, bound] : kScoreBounds) {
    SCOPED_TRACE(static_cast<int>(math));
    const auto network = Make(plan, {.batch_max = 256, .math = math});
    ASSERT_NE(network, nullptr);
    const auto session = network->NewSession();
    ASSERT_TRUE(session.ok()) << session.status();
    for (const int64_t batch : {1, 7}) CheckRun(plan, **session, batch, bound);
  }
}

TEST_F(GpuNetworksTest, TheRealModelScoresAsExpected) {
  const auto real = ReadRealModel();
  if (!real.ok()) GTEST_SKIP() << "HPS_REAL_DATA has no model: " << real.status();
  const auto read = OnnxModel::Parse(AsBytes(std::string_view(real->network)), {});
  ASSERT_TRUE(read.ok()) << read.status();
  const auto plan = MakeDensePlan(read->graph());
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::vector<std::vector<float>> inputs;
  for (const OnnxValue& input : plan->inputs) inputs.push_back(real->inputs.at(input.name));
  const auto batch = static_cast<int64_t>(real->scores.size());
  ASSERT_GT(batch, 0);
  ASSERT_LE(batch, 1024);
  for (const auto& [math, bound] : kScoreBounds) {
    SCOPED_TRACE(static_cast<int>(math));
    const auto network = Make(*plan, {.batch_max = 1024, .math = math});
    ASSERT_NE(network, nullptr);
    const auto session = network->NewSession();
    ASSERT_TRUE(session.ok()) << session.status();
    const auto got = RunOnGpu(**session, *plan, batch, inputs);
    for (size_t i = 0; i < real->scores.size(); ++i) EXPECT_NEAR(got[0][i], real->scores[i], bound);
    std::printf("largest error of real scores %.2e\n", LargestError(got[0], real->scores));
  }
}

TEST(ShortFloatsTest, FiniteValuesStayFinite) {
  constexpr float kFiniteMax = std::numeric_limits<float>::max();
  for (const float value : {65519.0F, 65520.0F, 1e6F, kFiniteMax}) {
    EXPECT_EQ(__half2float(ToFloat16(value)), 65504.0F) << value;
    EXPECT_EQ(__half2float(ToFloat16(-value)), -65504.0F) << value;
  }
  EXPECT_EQ(__bfloat162float(ToBfloat16(kFiniteMax)), kBfloat16Max);
  EXPECT_EQ(__bfloat162float(ToBfloat16(-kFiniteMax)), -kBfloat16Max);
  EXPECT_EQ(__half2float(ToFloat16(INFINITY)), INFINITY);
  EXPECT_EQ(__half2float(ToFloat16(-INFINITY)), -INFINITY);
  EXPECT_EQ(__bfloat162float(ToBfloat16(INFINITY)), INFINITY);
  EXPECT_EQ(__bfloat162float(ToBfloat16(-INFINITY)), -INFINITY);
  EXPECT_TRUE(std::isnan(__half2float(ToFloat16(NAN))));
  EXPECT_TRUE(std::isnan(__bfloat162float(ToBfloat16(NAN))));
  for (const float value : {0.0F, -1.5F, 65504.0F, 0.1F}) {
    EXPECT_NEAR(__half2float(ToFloat16(value)), value, 1e-3 * std::fabs(value));
    EXPECT_NEAR(__bfloat162float(ToBfloat16(value)), value, 4e-3 * std::fabs(value));
  }
}

// Softmax of scores that a mask may set to the smallest float32, all of a row.
TEST_F(GpuNetworksTest, ARowThatIsMaskedAltogetherHasEqualShares) {
  NetworkWriter writer(61);
  const std::string x = writer.Input("x", {4});
  const std::string seen = writer.Node("Greater", {writer.Input("mask", {4}), writer.Scalar(0)});
  const std::string masked =
      writer.Node("Where", {seen, x, writer.Scalar(std::numeric_limits<float>::lowest())});
  const DensePlan plan = PlanOf(writer.Done(writer.Node("Softmax", {masked}), {4}));
  const std::vector<std::vector<float>> inputs = {{1, 2, 1, 3, 1, 2, 1, 3},
                                                  {1, 0, 1, 0, 0, 0, 0, 0}};
  const float expected[] = {0.5F, 0, 0.5F, 0, 0.25F, 0.25F, 0.25F, 0.25F};
  for (const DenseMath math : {DenseMath::kFloat32, DenseMath::kFloat16, DenseMath::kBfloat16}) {
    SCOPED_TRACE(static_cast<int>(math));
    const auto network = Make(plan, {.batch_max = 2, .math = math});
    ASSERT_NE(network, nullptr);
    const auto session = network->NewSession();
    ASSERT_TRUE(session.ok()) << session.status();
    const auto got = RunOnGpu(**session, plan, 2, inputs);
    ASSERT_EQ(got.size(), size_t{1});
    for (size_t i = 0; i < std::size(expected); ++i) EXPECT_NEAR(got[0][i], expected[i], 1e-6) << i;
  }
}

// 20 matrices of a sample: from 3,277 samples on more than cuBLASLt takes at once.
TEST_F(GpuNetworksTest, MultipliesAnyNumberOfMatrices) {
  NetworkWriter writer(62);
  const std::string a = writer.Input("a", {20, 2, 4});
  const std::string b = writer.Input("b", {20, 4, 2});
  const DensePlan plan = PlanOf(writer.Done(writer.Node("MatMul", {a, b}), {20, 2, 2}));
  for (const auto& [math, bound] :
       {std::pair{DenseMath::kFloat32, 2e-5}, std::pair{DenseMath::kFloat16, 1e-2}}) {
    const auto network = Make(plan, {.batch_max = 4096, .math = math});
    ASSERT_NE(network, nullptr);
    const auto session = network->NewSession();
    ASSERT_TRUE(session.ok()) << session.status();
    for (const int64_t batch : {1, 4096}) CheckRun(plan, **session, batch, bound);
  }
}

TEST_F(GpuNetworksTest, SessionsShareANetwork) {
  const DensePlan plan = PlanOf(WdlNetwork());
  const auto network = Make(plan, {.batch_max = 16});
  ASSERT_NE(network, nullptr);
  const auto first = network->NewSession();
  const auto second = network->NewSession();
  ASSERT_TRUE(first.ok() && second.ok());
  for (const int64_t batch : {4, 9}) {
    CheckRun(plan, **first, batch, 2e-5);
    CheckRun(plan, **second, batch, 2e-5);
  }
}

// Products large enough for a measurement: the second session takes the first one's choice.
TEST_F(GpuNetworksTest, SessionsComputeBitwiseTheSame) {
  const DensePlan plan = PlanOf(ChainOfLayers(3, 1024));
  const auto network = Make(plan, {.batch_max = 256, .math = DenseMath::kTf32});
  ASSERT_NE(network, nullptr);
  const auto first = network->NewSession();
  ASSERT_TRUE(first.ok()) << first.status();
  for (const int64_t batch : {1, 100, 256}) {
    SCOPED_TRACE(batch);
    const auto second = network->NewSession();
    ASSERT_TRUE(second.ok()) << second.status();
    const auto inputs = RandomInputs(plan, batch, 5);
    EXPECT_EQ(RunOnGpu(**first, plan, batch, inputs), RunOnGpu(**second, plan, batch, inputs));
  }
}

TEST_F(GpuNetworksTest, RefusesBatchesAndAddressesThatDoNotFit) {
  const DensePlan plan = PlanOf(LogisticModel());
  const auto network = Make(plan, {.batch_max = 5});  // rounded up to 8
  ASSERT_NE(network, nullptr);
  const auto session = network->NewSession();
  ASSERT_TRUE(session.ok()) << session.status();
  const DeviceBuffer x = ToDevice(std::vector<std::byte>(256));
  const std::byte* inputs[] = {x.data()};
  for (const uint32_t batch : {0U, 9U}) {
    const absl::Status status = (*session)->Run(batch, inputs, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("possible are 1 to 8"));
  }
  inputs[0] = x.data() + 4;
  EXPECT_THAT(std::string((*session)->Run(2, inputs, nullptr).message()),
              HasSubstr("input 'x' does not begin at a multiple of 16 bytes"));
  CheckRun(plan, **session, 8, 2e-5);  // and the session goes on
}

}  // namespace
}  // namespace hps
