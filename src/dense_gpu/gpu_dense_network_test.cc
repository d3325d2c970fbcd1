// The interface of src/dense over the executor on the device.
#include "dense_gpu/gpu_dense_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "dense/test_logistic.h"
#include "l1_gpu/cuda_status.h"
#include "onnx/test_models.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

class GpuDenseNetworkTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status gpu = CheckGpuDevice(0);
    if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.message();
  }
};

TEST_F(GpuDenseNetworkTest, SessionsRunBatchesOfAnySizeAtTheSameTime) {
  const auto network = MakeGpuDenseNetwork({.onnx = LogisticModel().Bytes()}, {.batch_max = 1000});
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ((*network)->inputs()[0].name, "x");
  EXPECT_EQ((*network)->outputs()[0].name, "score");
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&network] {
      const auto session = (*network)->NewSession();
      ASSERT_TRUE(session.ok()) << session.status();
      for (const int64_t batch : {1, 2, 31, 32, 33, 1000, 1}) CheckLogistic(**session, batch);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(GpuDenseNetworkTest, RefusesShapesThatDoNotFit) {
  const auto network = MakeGpuDenseNetwork({.onnx = LogisticModel().Bytes()}, {.batch_max = 8});
  ASSERT_TRUE(network.ok()) << network.status();
  const auto session = (*network)->NewSession();
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<float> x(40), scores(20);
  for (const auto& [batch, width] : {std::pair<int64_t, int64_t>{1, 3}, {9, 2}, {0, 2}}) {
    const int64_t x_dims[] = {batch, width};
    const int64_t score_dims[] = {batch, 1};
    const DenseTensor input{std::as_writable_bytes(std::span(x)).data(), x_dims};
    const DenseTensor output{std::as_writable_bytes(std::span(scores)).data(), score_dims};
    EXPECT_EQ((*session)->Run({&input, 1}, {&output, 1}).code(), absl::StatusCode::kInternal);
  }
  CheckLogistic(**session, 8);  // and the session goes on
}

TEST(GpuDenseNetworkRefusalTest, NamesTheOperatorThatItLacks) {
  TestModel model = LogisticModel();
  model.graph().mutable_node(2)->set_op_type("CumSum");
  model.graph().mutable_node(2)->add_input("b");
  const absl::Status status = MakeGpuDenseNetwork({.onnx = model.Bytes()}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("(CumSum)"));
}

}  // namespace
}  // namespace hps
