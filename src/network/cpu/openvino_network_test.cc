#include "network/cpu/openvino_network.h"

// Tests of the interface src/network/dense_network.h, over OpenVINO.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "network/dense_network.h"
#include "network/onnx/test_models.h"
#include "network/test_logistic.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::unique_ptr<DenseNetwork>> Make(const std::string& onnx, uint32_t sessions = 1) {
  return MakeDenseNetwork({.onnx = onnx}, {.sessions = sessions});
}

TEST(OpenvinoNetworkTest, RunsBatchesOfAnySize) {
  const auto network = Make(LogisticModel().Bytes());
  ASSERT_TRUE(network.ok()) << network.status();
  ASSERT_EQ((*network)->inputs().size(), 1U);
  EXPECT_EQ((*network)->inputs()[0].name, "x");
  EXPECT_EQ((*network)->outputs()[0].name, "score");
  const auto session = (*network)->NewSession();
  ASSERT_TRUE(session.ok());
  for (const int64_t batch : {1, 2, 31, 32, 33, 1000, 1}) CheckLogistic(**session, batch);
}

TEST(OpenvinoNetworkTest, SessionsRunAtTheSameTime) {
  const auto network = Make(LogisticModel().Bytes(), 4);
  ASSERT_TRUE(network.ok()) << network.status();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&network] {
      const auto session = (*network)->NewSession();
      ASSERT_TRUE(session.ok());
      for (int64_t batch = 1; batch < 100; ++batch) CheckLogistic(**session, batch);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Catches: an answer with memory of before, as OpenVINO takes more memory than its result needs.
TEST(OpenvinoNetworkTest, AnOutputOfAnotherShapeIsAnError) {
  // Two samples of the input become one of the output, against what the file says.
  TestModel model = LogisticModel();
  model.Integers("pairs", {2}, {-1, 2});
  model.Integers("second", {1}, {1});
  model.Node("ReduceSum", "sums", {model.Node("Reshape", "paired", {"score", "pairs"}), "second"});
  model.graph().clear_output();
  model.Output("sums", ::onnx::TensorProto::FLOAT, {-1, 1});
  const auto network = Make(model.Bytes());
  ASSERT_TRUE(network.ok()) << network.status();
  const auto session = (*network)->NewSession();
  float x[] = {1, 2, 3, 4, 5, 6, 7, 8};
  float sums[] = {7, 7, 7, 7};
  const int64_t x_dims[] = {4, 2};
  const int64_t sums_dims[] = {4, 1};
  const DenseTensor input{std::as_writable_bytes(std::span(x)).data(), x_dims};
  const DenseTensor output{std::as_writable_bytes(std::span(sums)).data(), sums_dims};
  const absl::Status status = (*session)->Run({&input, 1}, {&output, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("'sums' has another shape"));
}

TEST(OpenvinoNetworkTest, OutputsAreFloat32) {
  TestModel model = LogisticModel();
  model.Node("Cast", "rounded", {"score"});
  model.Attribute("to", ::onnx::TensorProto::FLOAT16);
  model.graph().clear_output();
  model.Output("rounded", ::onnx::TensorProto::FLOAT16, {-1, 1});
  const auto network = Make(model.Bytes());
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ((*network)->outputs()[0].element, OnnxElement::kFloat32);
  const auto session = (*network)->NewSession();
  float x[] = {1, 2};
  float score = 0;
  const int64_t x_dims[] = {1, 2};
  const int64_t score_dims[] = {1, 1};
  const DenseTensor input{std::as_writable_bytes(std::span(x)).data(), x_dims};
  const DenseTensor output{std::as_writable_bytes(std::span(&score, 1)).data(), score_dims};
  ASSERT_TRUE((*session)->Run({&input, 1}, {&output, 1}).ok());
  EXPECT_NEAR(score, Sigmoid(0.125F), 1e-3);
}

// score + 0 x the sum of a tensor of batch^3 elements.
TestModel CubicModel() {
  TestModel model = LogisticModel();
  model.Integers("first", {1}, {0});
  const std::string shape = model.Node("Shape", "shape", {"x"});
  const std::string batch = model.Node("Gather", "batch", {shape, "first"});
  const std::string square = model.Node("Mul", "square", {batch, batch});
  const std::string cube = model.Node("Mul", "cube", {square, batch});
  const std::string zeros = model.Node("ConstantOfShape", "zeros", {cube});
  const std::string sum = model.Node("ReduceSum", "zero", {zeros});
  model.Attribute("keepdims", 0);
  model.Node("Add", "score_and_zero", {"score", sum});
  model.graph().clear_output();
  model.Output("score_and_zero", ::onnx::TensorProto::FLOAT, {-1, 1});
  return model;
}

// Catches: a request of 32 KiB that has the engine take hundreds of gigabytes.
TEST(OpenvinoNetworkTest, ProductsOfDimensionsAreBoundedBeforeTheyAreAllocated) {
  const auto network = Make(CubicModel().Bytes());
  ASSERT_TRUE(network.ok()) << network.status();
  const auto session = (*network)->NewSession();
  for (const int64_t batch : {100, 4096, 3000, 33, 4096}) {
    std::vector<float> x(static_cast<size_t>(2 * batch));
    std::vector<float> scores(static_cast<size_t>(batch), -1.0F);
    const int64_t x_dims[] = {batch, 2};
    const int64_t score_dims[] = {batch, 1};
    const DenseTensor input{std::as_writable_bytes(std::span(x)).data(), x_dims};
    const DenseTensor output{std::as_writable_bytes(std::span(scores)).data(), score_dims};
    const absl::Status status = (*session)->Run({&input, 1}, {&output, 1});
    if (batch <= 100) {
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_NEAR(scores.back(), Sigmoid(0.125F), 1e-6);
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("too much memory"));
  }
}

TEST(OpenvinoNetworkTest, WrongShapesAreAnError) {
  const auto network = Make(LogisticModel().Bytes());
  ASSERT_TRUE(network.ok());
  const auto session = (*network)->NewSession();
  float x[] = {1, 2, 3};
  float score = 0;
  const int64_t x_dims[] = {1, 3};
  const int64_t score_dims[] = {1, 1};
  const DenseTensor input{std::as_writable_bytes(std::span(x)).data(), x_dims};
  const DenseTensor output{std::as_writable_bytes(std::span(&score, 1)).data(), score_dims};
  EXPECT_EQ((*session)->Run({&input, 1}, {&output, 1}).code(), absl::StatusCode::kInvalidArgument);
  CheckLogistic(**session, 3);  // and the session goes on
}

// score [batch, 1] from x [batch, k, 4], whose number k the file leaves open.
TestModel OpenKeysModel() {
  TestModel model;
  model.Input("x", ::onnx::TensorProto::FLOAT, {-1, -1, 4});
  return model;
}

// The number of values of each sample that the network takes is known only inside it.
TEST(OpenvinoNetworkTest, ANumberOfKeysThatDoesNotFitIsTheCallersMistake) {
  struct Form {
    const char* name;
    std::vector<int64_t> good, bad;
    void (*make)(TestModel&);
  };
  const Form forms[] = {
      {"Flatten",
       {3},
       {1, 2, 4, 6},
       [](TestModel& model) {
         model.Floats("w", {12, 1}, std::vector<float>(12, 0.5F));
         model.Node("MatMul", "score", {model.Node("Flatten", "flat", {"x"}), "w"});
       }},
      {"Reshape",
       {3},
       {1, 2, 4, 6},
       [](TestModel& model) {
         model.Integers("row", {2}, {-1, 12});
         model.Floats("w", {12, 1}, std::vector<float>(12, 0.5F));
         model.Node("MatMul", "score", {model.Node("Reshape", "flat", {"x", "row"}), "w"});
       }},
      {"one key for each line",
       {1},
       {2, 3},
       [](TestModel& model) {
         model.Integers("row", {2}, {-1, 4});
         model.Floats("w", {4, 1}, std::vector<float>(4, 0.5F));
         model.Node("MatMul", "score", {model.Node("Reshape", "flat", {"x", "row"}), "w"});
       }},
      {"weights by position",
       {1, 3},
       {2, 4, 6},
       [](TestModel& model) {
         model.Floats("w", {3, 4}, std::vector<float>(12, 0.5F));
         model.Integers("axes", {2}, {1, 2});
         model.Integers("last", {1}, {1});
         const std::string sum =
             model.Node("ReduceSum", "sum", {model.Node("Mul", "weighted", {"x", "w"}), "axes"});
         model.Attribute("keepdims", 0);
         model.Node("Unsqueeze", "score", {sum, "last"});
       }},
  };
  for (const Form& form : forms) {
    SCOPED_TRACE(form.name);
    TestModel model = OpenKeysModel();
    form.make(model);
    model.Output("score", ::onnx::TensorProto::FLOAT, {-1, 1});
    const auto network = Make(model.Bytes());
    ASSERT_TRUE(network.ok()) << network.status();
    const auto session = (*network)->NewSession();
    const auto run = [&](int64_t batch, int64_t keys) {
      std::vector<float> x(static_cast<size_t>(batch * keys * 4), 1.0F);
      std::vector<float> score(static_cast<size_t>(batch), -1.0F);
      const int64_t x_dims[] = {batch, keys, 4};
      const int64_t score_dims[] = {batch, 1};
      const DenseTensor input{std::as_writable_bytes(std::span(x)).data(), x_dims};
      const DenseTensor output{std::as_writable_bytes(std::span(score)).data(), score_dims};
      return (*session)->Run({&input, 1}, {&output, 1});
    };
    for (int round = 0; round < 2; ++round) {
      for (const int64_t keys : form.good) EXPECT_TRUE(run(8, keys).ok()) << run(8, keys);
      for (const int64_t keys : form.bad)
        EXPECT_EQ(run(3, keys).code(), absl::StatusCode::kInvalidArgument)
            << keys << ": " << run(3, keys);
    }
  }
}

TEST(OpenvinoNetworkTest, RefusesWhatReaderOrEngineDoNotTake) {
  EXPECT_EQ(Make("no model").status().code(), absl::StatusCode::kInvalidArgument);
  TestModel model = LogisticModel();
  model.graph().mutable_node(0)->set_op_type("Loop");
  EXPECT_THAT(std::string(Make(model.Bytes()).status().message()), HasSubstr("not supported"));
  TestModel unfit = LogisticModel();
  unfit.graph().mutable_initializer(0)->set_dims(0, 1);
  unfit.graph().mutable_initializer(0)->set_dims(1, 2);
  const absl::Status refused = Make(unfit.Bytes()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("OpenVINO does not take"));
}

}  // namespace
}  // namespace hps
