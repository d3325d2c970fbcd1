// Predictions whose network runs on a GPU: the same numbers as on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "inference/predictor.h"
#include "network/onnx/test_models.h"

namespace hps {
namespace {

constexpr int kDevice = 0;

class DevicePredictorTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto made = MakeDeviceDenseNetwork({.onnx = LogisticModel().Bytes()}, {});
    if (absl::IsUnavailable(made.status()))
      GTEST_SKIP() << "needs a GPU and cuBLASLt: " << made.status().message();
  }

  static std::unique_ptr<Predictor> Make(const std::string& onnx) {
    auto made = Predictor::Make(
        std::make_shared<const ModelNetwork>(ModelNetwork{
            .onnx = onnx, .inputs = {{.name = "x", .table = "x", .pooling = RowPooling::kMean}}}),
        std::vector<TableSpec>{{.name = "m/x", .dim = 2}}, {.devices = {kDevice}}, "m");
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  }

  // Scores of `batch` bags of 0 to 3 rows each.
  static std::vector<float> Scores(PredictionSession& session, size_t batch) {
    std::vector<float> rows, scores(batch, -1);
    Prediction request;
    request.Reset(1, 1);
    request.batch = batch;
    for (size_t i = 0; i < batch; ++i) {
      request.inputs[0].offsets.push_back(static_cast<int64_t>(rows.size() / 2));
      for (size_t j = 0; j < 2 * (i % 4); ++j) rows.push_back(static_cast<float>((i + j) % 13) - 6);
    }
    request.inputs[0].offsets.push_back(static_cast<int64_t>(rows.size() / 2));
    request.inputs[0].rows = rows.data();
    request.outputs[0] = std::as_writable_bytes(std::span(scores)).data();
    const Prediction* const all[] = {&request};
    const absl::Status ran = session.Run(all);
    EXPECT_TRUE(ran.ok()) << ran;
    return scores;
  }
};

TEST_F(DevicePredictorTest, SlotsOfOneDevicePredictAsTheCpuDoes) {
  const auto predictor = Make(LogisticModel().Bytes());
  ASSERT_NE(predictor, nullptr);
  std::vector<std::thread> threads;
  static constexpr size_t kBatches[] = {1, 7, 33, 1000, PredictionSession::kSamplesMax + 5};
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&predictor] {
      const auto on_device = *predictor->NewSession(kDevice);
      const auto on_cpu = *predictor->NewSession();
      for (const size_t batch : kBatches) {
        const std::vector<float> expected = Scores(*on_cpu, batch);
        const std::vector<float> scores = Scores(*on_device, batch);
        for (size_t s = 0; s < batch; ++s) ASSERT_NEAR(scores[s], expected[s], 1e-6) << s;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(predictor->runs().on_devices, 3U * 6);  // the last batch takes two runs
  EXPECT_EQ(predictor->runs().on_cpu, 3U * 6);
  EXPECT_EQ(predictor->runs().device_failures, 0U);
}

TEST_F(DevicePredictorTest, ANetworkThatTheDeviceDoesNotRunIsNamedAndRunsOnTheCpu) {
  TestModel model = LogisticModel();
  ::onnx::NodeProto& last = *model.graph().mutable_node(2);
  last.set_op_type("CumSum");
  last.add_input("axis");
  model.Integers("axis", {}, {1});
  testing::internal::CaptureStderr();
  const auto predictor = Make(model.Bytes());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr("on 0 of 1 GPUs"), testing::HasSubstr("(CumSum)")));
  ASSERT_NE(predictor, nullptr);
  const auto session = *predictor->NewSession(kDevice);
  EXPECT_NEAR(Scores(*session, 1)[0], 0.125F, 1e-6);  // an empty bag
  EXPECT_EQ(predictor->runs().on_cpu, 1U);
  EXPECT_EQ(predictor->runs().on_devices, 0U);
}

}  // namespace
}  // namespace hps
