#include "inference/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "network/onnx/test_models.h"

namespace hps {
namespace {

// score = Sigmoid(0.5 x0 - 0.25 x1 + 0.125) of one row of table m/x, or of a pooled bag.
class PredictorTest : public testing::Test {
 protected:
  void Make(RowPooling pooling) {
    auto made = Predictor::Make(std::make_shared<const ModelNetwork>(ModelNetwork{
                                    .onnx = LogisticModel().Bytes(),
                                    .inputs = {{.name = "x", .table = "x", .pooling = pooling}}}),
                                tables_, {});
    if (absl::IsUnimplemented(made.status())) GTEST_SKIP() << "no engine in this build";
    ASSERT_TRUE(made.ok()) << made.status();
    predictor_ = *std::move(made);
    session_ = *predictor_->NewSession();
  }

  static float Score(float a, float b) {
    return 1.0F / (1.0F + std::exp(-(0.5F * a - 0.25F * b + 0.125F)));
  }

  // A request whose rows are rows_ from sample `begin` on.
  Prediction Request(size_t begin, size_t batch, std::vector<float>& scores) {
    Prediction request;
    request.Reset(1, 1);
    request.batch = batch;
    request.inputs[0].rows = rows_.data() + 2 * begin;
    scores.assign(batch, -1.0F);
    request.outputs[0] = std::as_writable_bytes(std::span(scores)).data();
    return request;
  }

  const std::vector<TableSpec> tables_ = {{.name = "m/x", .dim = 2}};
  std::vector<float> rows_;
  std::unique_ptr<Predictor> predictor_;
  std::unique_ptr<PredictionSession> session_;
};

TEST_F(PredictorTest, RequestsGoThroughTogetherAndApartAgain) {
  Make(RowPooling::kSum);
  if (predictor_ == nullptr) return;
  const size_t samples = 2 * PredictionSession::kSamplesMax + 5;
  for (size_t i = 0; i < 2 * samples; ++i) rows_.push_back(static_cast<float>(i % 23) - 11);
  for (const size_t first : {size_t{1}, size_t{7}, size_t{PredictionSession::kSamplesMax + 1}}) {
    std::vector<float> a, b, none;
    const Prediction one = Request(0, first, a);
    const Prediction two = Request(first, samples - first, b);
    const Prediction empty = Request(0, 0, none);
    const std::vector<const Prediction*> all = {&one, &two, &empty};
    const absl::Status ran = session_->Run(all);
    ASSERT_TRUE(ran.ok()) << ran;
    a.insert(a.end(), b.begin(), b.end());
    for (size_t i = 0; i < samples; ++i)
      ASSERT_NEAR(a[i], Score(rows_[2 * i], rows_[2 * i + 1]), 1e-6) << i;
  }
}

TEST_F(PredictorTest, BagsArePooled) {
  Make(RowPooling::kMean);
  if (predictor_ == nullptr) return;
  rows_ = {1, 2, 3, 4, 5, 6};
  std::vector<float> scores;
  Prediction request = Request(0, 3, scores);
  request.inputs[0].offsets = {0, 2, 2, 3};
  const Prediction* const all[] = {&request};
  ASSERT_TRUE(session_->Run(all).ok());
  EXPECT_NEAR(scores[0], Score(2, 3), 1e-6);
  EXPECT_NEAR(scores[1], Score(0, 0), 1e-6);
  EXPECT_NEAR(scores[2], Score(5, 6), 1e-6);
}

TEST_F(PredictorTest, ANetworkThatDoesNotFitIsRefused) {
  const auto made = Predictor::Make(
      std::make_shared<const ModelNetwork>(
          ModelNetwork{.onnx = LogisticModel().Bytes(), .inputs = {{.name = "x", .table = "y"}}}),
      tables_, {});
  EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hps
