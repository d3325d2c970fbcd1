// What every engine must make of LogisticModel (network/onnx/test_models.h).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "network/dense_network.h"

namespace hps {

inline float Sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

// Runs score = Sigmoid(0.5 a - 0.25 b + 0.125) for `batch` samples, and checks each.
inline void CheckLogistic(DenseSession& session, int64_t batch) {
  std::vector<float> x;
  for (int64_t i = 0; i < 2 * batch; ++i) x.push_back(static_cast<float>(i % 17) - 8);
  std::vector<float> scores(static_cast<size_t>(batch), -1.0F);
  const int64_t x_dims[] = {batch, 2};
  const int64_t score_dims[] = {batch, 1};
  const DenseTensor input{std::as_writable_bytes(std::span(x)).data(), x_dims};
  const DenseTensor output{std::as_writable_bytes(std::span(scores)).data(), score_dims};
  const absl::Status status = session.Run({&input, 1}, {&output, 1});
  ASSERT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < scores.size(); ++i)
    EXPECT_NEAR(scores[i], Sigmoid(0.5F * x[2 * i] - 0.25F * x[2 * i + 1] + 0.125F), 1e-6);
}

}  // namespace hps
