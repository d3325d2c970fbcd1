// A session of a dense network makes all of its memory, streams, events and graphs when it is made:
// no call, not even the first of its kind, makes or frees any, or synchronizes through the runtime.
// This program counts the runtime calls listed in test_counted_runtime.h.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "gpu/cuda_status.h"
#include "l1_gpu/test_counted_runtime.h"
#include "network/dense_network.h"
#include "network/onnx/test_models.h"
#include "network/test_logistic.h"

namespace hps {
namespace {

class GpuSessionAllocationTest : public testing::Test {
 protected:
  static constexpr uint32_t kRun = 64;          // samples
  static constexpr uint32_t kSamples = 10'000;  // of a call: 157 runs

  void SetUp() override {
    const absl::Status gpu = CheckGpuDevice(0);
    if (!gpu.ok()) GTEST_SKIP() << "needs a GPU: " << gpu.message();
    auto network = MakeDeviceDenseNetwork({.onnx = LogisticModel().Bytes()},
                                          {.batch_max = kRun, .buffer_bytes_max = 0});
    ASSERT_TRUE(network.ok()) << network.status();
    network_ = *std::move(network);
  }

  // What `call` counts in a new session, and then once more.
  void CheckMakesNothing(const std::function<absl::Status(DenseSession&)>& call) {
    const auto session = network_->NewSession();
    ASSERT_TRUE(session.ok()) << session.status();
    for (int round = 0; round < 2; ++round) {
      const uint64_t before = runtime_calls_here;
      const absl::Status ran = call(**session);
      EXPECT_EQ(runtime_calls_here, before) << "round " << round;
      ASSERT_TRUE(ran.ok()) << ran;
    }
  }

  // Rows are whatever the memory has.
  absl::Status RunFromRows(DenseSession& session, uint32_t samples, uint32_t bag) {
    const KeyPiece keys = {.keys = std::as_bytes(std::span(keys_)).data(),
                           .key_count = samples * bag};
    const auto room = session.row_room()->Make({&keys, 1}, samples * bag * 2 * sizeof(float));
    if (!room.ok()) return room.status();
    const FedInput fed = {.dim = 2, .rows = AsAligned<float>(room->rows), .sample_rows = bag};
    return session.RunFromRows(samples, {&fed, 1}, outputs_);
  }

  std::vector<Key> keys_ = std::vector<Key>(3 * kSamples, 1);
  std::vector<float> scores_ = std::vector<float>(kSamples);
  std::byte* const outputs_[1] = {std::as_writable_bytes(std::span(scores_)).data()};
  std::unique_ptr<DenseNetwork> network_;
};

TEST_F(GpuSessionAllocationTest, TheCountersCount) {
  const uint64_t before = runtime_calls_here;
  ASSERT_TRUE(network_->NewSession().ok());
  EXPECT_GT(runtime_calls_here, before + 20);
}

TEST_F(GpuSessionAllocationTest, ARunFromTheHostMakesNothing) {
  std::vector<float> x(2 * kRun);
  CheckMakesNothing([&](DenseSession& session) {
    const int64_t x_dims[] = {kRun, 2};
    const int64_t score_dims[] = {kRun, 1};
    const DenseTensor input{std::as_writable_bytes(std::span(x)).data(), x_dims};
    const DenseTensor output{outputs_[0], score_dims};
    return session.Run({&input, 1}, {&output, 1});
  });
}

TEST_F(GpuSessionAllocationTest, ARunFromRowsMakesNothing) {
  for (const uint32_t samples : {1U, kRun, kSamples}) {
    for (const uint32_t bag : {1U, 3U}) {
      SCOPED_TRACE(testing::Message() << samples << " samples, bags of " << bag);
      ASSERT_NO_FATAL_FAILURE(CheckMakesNothing(
          [&](DenseSession& session) { return RunFromRows(session, samples, bag); }));
    }
  }
}

TEST_F(GpuSessionAllocationTest, BagsAndInputsOfTheClientMakeNothing) {
  std::vector<BagPlace> bags;
  for (uint32_t i = 0; i < kSamples; ++i) bags.push_back({i, i + i % 3});
  const std::vector<float> x(2 * kSamples);
  CheckMakesNothing([&](DenseSession& session) {
    const auto room = session.row_room()->Make({}, 2 * kSamples * 2 * sizeof(float));
    if (!room.ok()) return room.status();
    const FedInput fed = {.dim = 2, .rows = AsAligned<float>(room->rows), .bags = bags};
    return session.RunFromRows(kSamples, {&fed, 1}, outputs_);
  });
  CheckMakesNothing([&](DenseSession& session) {
    const FedInput fed = {.sent = std::as_bytes(std::span(x))};
    return session.RunFromRows(kSamples, {&fed, 1}, outputs_);
  });
}

TEST_F(GpuSessionAllocationTest, ACallInPartsMakesNothing) {
  constexpr uint32_t kPart = 1000;
  CheckMakesNothing([&](DenseSession& session) {
    absl::Status status = session.BeginParts(kSamples);
    for (uint32_t begin = 0; status.ok() && begin < kSamples; begin += kPart) {
      const KeyPiece keys = {.keys = std::as_bytes(std::span(keys_)).data(), .key_count = kPart};
      const auto room =
          session.row_room()->MakePart({&keys, 1}, kPart * 2 * sizeof(float), begin / kPart);
      if (!room.ok()) return room.status();
      const FedInput fed = {.dim = 2, .rows = AsAligned<float>(room->rows)};
      status = session.EnqueuePart({.begin = begin, .count = kPart}, {&fed, 1});
    }
    return status.ok() ? session.EndParts(outputs_) : status;
  });
}

TEST_F(GpuSessionAllocationTest, StatusesMakeNothing) {
  std::vector<KeyStatus> statuses(100);
  CheckMakesNothing([&](DenseSession& session) {
    const KeyPiece keys = {.keys = std::as_bytes(std::span(keys_)).data(),
                           .key_count = statuses.size()};
    const auto room = session.row_room()->Make({&keys, 1}, 0);
    return room.ok() ? session.row_room()->ReadStatuses(statuses) : room.status();
  });
}

}  // namespace
}  // namespace hps
