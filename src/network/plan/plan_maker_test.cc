// Plans, run on the host, against OpenVINO on the same networks.
#include "network/plan/plan_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "base/macros.h"
#include "network/dense_network.h"
#include "network/onnx/model.h"
#include "network/plan/plan_passes.h"
#include "network/plan/test_networks.h"
#include "network/plan/test_plan_runner.h"
#include "network/plan/test_real_model.h"

namespace hps {
namespace {

using ::testing::HasSubstr;
using ::testing::TestWithParam;
using ::testing::ValuesIn;

absl::StatusOr<DensePlan> PlanOf(const TestModel& model) {
  const std::string bytes = model.Bytes();
  HPS_ASSIGN_OR_RETURN(const OnnxModel read,
                       OnnxModel::Parse(AsBytes(std::string_view(bytes)), {}));
  return MakeDensePlan(read.graph());
}

// What OpenVINO makes of the inputs. Empty in a build without it: then plans are made and run, and
// not compared.
std::vector<std::vector<float>> Reference(const TestModel& model, const DensePlan& plan,
                                          int64_t batch,
                                          const std::vector<std::vector<float>>& inputs) {
  const auto network = MakeDenseNetwork({.onnx = model.Bytes()}, {});
  if (absl::IsUnimplemented(network.status())) return {};
  EXPECT_TRUE(network.ok()) << network.status();
  if (!network.ok()) return {};
  const auto session = (*network)->NewSession();
  std::vector<std::vector<float>> outputs;
  std::vector<std::vector<int64_t>> dims;
  std::vector<DenseTensor> in, out;
  for (size_t i = 0; i < inputs.size(); ++i) {
    dims.push_back(plan.inputs[i].dims);
    dims.back().front() = batch;
  }
  for (const PlanView& view : plan.output_views) {
    dims.push_back(view.dims);
    dims.back().front() *= batch;
    outputs.emplace_back(static_cast<size_t>(view.ElementCount() * batch), NAN);
  }
  std::vector<std::vector<std::byte>> bytes;
  for (size_t i = 0; i < inputs.size(); ++i) bytes.push_back(InputBytes(plan.inputs[i], inputs[i]));
  for (size_t i = 0; i < inputs.size(); ++i) in.push_back({bytes[i].data(), dims[i]});
  for (size_t i = 0; i < outputs.size(); ++i)
    out.push_back({std::as_writable_bytes(std::span(outputs[i])).data(), dims[inputs.size() + i]});
  const absl::Status status = (*session)->Run(in, out);
  EXPECT_TRUE(status.ok()) << status;
  return outputs;
}

class PlanNetworkTest : public TestWithParam<TestNetwork> {};

TEST_P(PlanNetworkTest, ComputesWhatOpenvinoComputes) {
  const TestModel model = GetParam().make();
  const auto plan = PlanOf(model);
  ASSERT_TRUE(plan.ok()) << plan.status();
  if (GetParam().steps >= 0) {
    EXPECT_EQ(plan->steps.size(), static_cast<size_t>(GetParam().steps));
  }
  for (const int64_t batch : {1, 3}) {
    const std::vector<std::vector<float>> inputs = RandomInputs(*plan, batch, 7);
    const std::vector<std::vector<float>> expected = Reference(model, *plan, batch, inputs);
    const std::vector<std::vector<float>> got = PlanRunner(*plan).Run(batch, inputs);
    if (expected.empty()) continue;
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].size(), expected[i].size());
      for (size_t e = 0; e < got[i].size(); ++e)
        ASSERT_NEAR(got[i][e], expected[i][e], 2e-5 * (1 + std::fabs(expected[i][e])))
            << "output " << i << ", element " << e << ", batch " << batch;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlanNetworkTest, ValuesIn(TestNetworks()),
                         [](const auto& of) { return std::string(of.param.name); });

std::string Refusal(TestModel model) {
  const auto plan = PlanOf(model);
  EXPECT_FALSE(plan.ok());
  if (plan.ok()) return "";
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kUnimplemented) << plan.status();
  return std::string(plan.status().message());
}

TestModel OneNode(const std::string& op, const std::vector<std::string>& more = {}) {
  TestModel model;
  model.Input("x", ::onnx::TensorProto::FLOAT, {-1, 4});
  model.Integers("first", {1}, {0});
  std::vector<std::string> inputs = {"x"};
  inputs.insert(inputs.end(), more.begin(), more.end());
  model.Node(op, "y", inputs);
  model.Output("y", ::onnx::TensorProto::FLOAT, {-1, 4});
  return model;
}

TEST(PlanMakerTest, NamesTheNodeThatItCannotRun) {
  EXPECT_THAT(Refusal(OneNode("CumSum", {"first"})),
              HasSubstr("node 'y' (CumSum): the device has no such operator"));
  EXPECT_THAT(Refusal(OneNode("Transpose")), HasSubstr("batch would not stay the first"));
  EXPECT_THAT(Refusal(OneNode("ReduceSum", {"first"})), HasSubstr("reduces over the batch"));
  EXPECT_THAT(Refusal(OneNode("ReduceMean")), HasSubstr("reduces over the batch"));
  EXPECT_THAT(Refusal(OneNode("Gather", {"first"})), HasSubstr("picks samples"));
  EXPECT_THAT(Refusal(OneNode("Unsqueeze", {"first"})), HasSubstr("batch would not stay"));
}

TEST(PlanMakerTest, RefusesNodesThatLackInputsOrHaveMoreOutputs) {
  TestModel lacking = OneNode("Concat", {"first"});
  lacking.graph().mutable_node(0)->set_input(1, "");
  EXPECT_THAT(std::string(PlanOf(lacking).status().message()), HasSubstr("it has no input 1"));
  TestModel more;
  more.Input("x", ::onnx::TensorProto::FLOAT, {-1, 4});
  more.Node("Dropout", "y", {"x"});
  more.graph().mutable_node(0)->add_output("mask");
  more.Node("Where", "z", {"mask", "x", "y"});
  more.Output("z", ::onnx::TensorProto::FLOAT, {-1, 4});
  EXPECT_THAT(Refusal(more), HasSubstr("(Dropout): its second output is used"));
}

// Catches: arithmetic of sizes that wraps, or that reads operands of another kind.
TEST(PlanMakerTest, RefusesConstantsThatItCannotCompute) {
  const auto folded = [](const std::string& op, int64_t a, int64_t b) {
    TestModel model;
    model.Input("x", ::onnx::TensorProto::FLOAT, {-1, 4});
    model.Integers("a", {2}, {a, 2});
    model.Integers("b", {2}, {b, 2});
    model.Node("Reshape", "y", {"x", model.Node(op, "shape", {"a", "b"})});
    model.Output("y", ::onnx::TensorProto::FLOAT, {-1, 4});
    return PlanOf(model).status();
  };
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(folded("Add", kMost, 1).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(folded("Mul", kMost, 2).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(folded("Div", 1, 0).code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(folded("Div", -kMost - 1, -1).code(), absl::StatusCode::kUnimplemented);
  EXPECT_FALSE(folded("Mul", kMost / 2, 2).ok());  // a shape beyond 64 bits
}

TEST(PlanMakerTest, RefusesInputsThatVaryBeyondTheBatch) {
  TestModel model;
  model.Input("x", ::onnx::TensorProto::FLOAT, {-1, -1});
  model.Node("Relu", "y", {"x"});
  model.Output("y", ::onnx::TensorProto::FLOAT, {-1, -1});
  EXPECT_THAT(Refusal(model), HasSubstr("input 'x': only its first dimension may vary"));
}

TEST(PlanMakerTest, RefusesABatchThatMeetsItself) {
  TestModel model;
  model.Input("x", ::onnx::TensorProto::FLOAT, {-1, 4});
  model.Integers("last", {1}, {1});
  model.Node("ReduceSum", "sum", {"x", "last"});
  model.Attribute("keepdims", 0);
  model.Node("Add", "y", {"x", "sum"});  // [batch, 4] + [batch]
  model.Output("y", ::onnx::TensorProto::FLOAT, {-1, 4});
  EXPECT_THAT(Refusal(model), HasSubstr("batch would not stay the first"));
}

TEST(PlanMakerTest, BuffersThatLiveAtOnceDoNotOverlap) {
  for (const TestNetwork& network : TestNetworks()) {
    const auto plan = PlanOf(network.make());
    ASSERT_TRUE(plan.ok()) << network.name << ": " << plan.status();
    int64_t total = 0;
    for (const PlanBuffer& buffer : plan->buffers) total += (buffer.sample_elements + 63) / 64 * 64;
    EXPECT_LE(plan->arena_elements, total) << network.name;
  }
  // A chain of layers needs the memory of two.
  const auto plan = PlanOf(ChainOfLayers(6, 64));
  ASSERT_TRUE(plan.ok());
  EXPECT_LE(plan->arena_elements, 2 * 64 + 64);
}

TEST(PlanMakerTest, OutputsAndWhatIsMultipliedFromThemStayFloat32) {
  const auto dlrm = PlanOf(DlrmNetwork({}));
  ASSERT_TRUE(dlrm.ok());
  const std::vector<bool> stays = Float32Buffers(*dlrm);
  for (size_t b = 0; b < stays.size(); ++b)
    EXPECT_EQ(stays[b], b == dlrm->output_views[0].index) << b;
  // The first layer of a chain is an output as well: so are, by type, the others.
  auto chain = PlanOf(ChainOfLayers(3, 64));
  ASSERT_TRUE(chain.ok());
  std::vector<uint32_t> made;
  for (const PlanStep& step : chain->steps) {
    const auto* const gemm = std::get_if<GemmStep>(&step);
    if (gemm == nullptr) continue;
    if (made.empty()) chain->output_views.push_back(gemm->out);
    made.push_back(gemm->out.index);
  }
  EXPECT_EQ(made.size(), 3U);
  const std::vector<bool> stays_of_chain = Float32Buffers(*chain);
  for (const uint32_t buffer : made) EXPECT_TRUE(stays_of_chain[buffer]) << buffer;
}

TEST(PlanMakerTest, TheRealModelScoresAsExpected) {
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
  const auto got = PlanRunner(*plan).Run(batch, inputs);
  ASSERT_EQ(got[0].size(), real->scores.size());
  for (size_t i = 0; i < got[0].size(); ++i) EXPECT_NEAR(got[0][i], real->scores[i], 1e-5);
}

// Random networks of all operators that keep [batch, 8].
TEST(PlanMakerTest, RandomNetworksComputeWhatOpenvinoComputes) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    const TestModel model = RandomNetwork(seed);
    const auto plan = PlanOf(model);
    ASSERT_TRUE(plan.ok()) << "seed " << seed << ": " << plan.status();
    const std::vector<std::vector<float>> inputs = RandomInputs(*plan, 3, seed);
    const auto expected = Reference(model, *plan, 3, inputs);
    const auto got = PlanRunner(*plan).Run(3, inputs);
    if (expected.empty()) continue;
    for (size_t e = 0; e < expected[0].size(); ++e)
      ASSERT_NEAR(got[0][e], expected[0][e], 1e-4 * (1 + std::fabs(expected[0][e])))
          << "seed " << seed << ", element " << e;
  }
}

}  // namespace
}  // namespace hps
