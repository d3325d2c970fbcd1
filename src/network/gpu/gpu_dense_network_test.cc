// The interface of src/network over the executor on the device.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "gpu/cuda_status.h"
#include "network/dense_network.h"
#include "network/onnx/test_models.h"
#include "network/plan/test_network_writer.h"
#include "network/test_logistic.h"

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
  const auto network =
      MakeDeviceDenseNetwork({.onnx = LogisticModel().Bytes()}, {.batch_max = 1000});
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
  const auto network = MakeDeviceDenseNetwork({.onnx = LogisticModel().Bytes()}, {.batch_max = 8});
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

// Rows of two numbers in a session's room: row r is (r % 17 - 8, r % 5).
class RoomOfRows {
 public:
  RoomOfRows(DenseSession& session, uint32_t count) {
    for (uint32_t r = 0; r < count; ++r) {
      values_.push_back(static_cast<float>(r % 17) - 8);
      values_.push_back(static_cast<float>(r % 5));
    }
    const auto room = session.row_room()->Make({}, values_.size() * sizeof(float));
    EXPECT_TRUE(room.ok()) << room.status();
    rows_ = AsAligned<float>(room->rows);
    const auto stream = static_cast<cudaStream_t>(session.row_room()->stream().handle);
    EXPECT_EQ(cudaMemcpyAsync(room->rows, values_.data(), values_.size() * sizeof(float),
                              cudaMemcpyHostToDevice, stream),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }
  const float* rows() const { return rows_; }

  // Of the sum of rows [begin, end).
  float Score(uint32_t begin, uint32_t end) const {
    float a = 0, b = 0;
    for (uint32_t r = begin; r < end; ++r) a += values_[2 * r], b += values_[2 * r + 1];
    return Sigmoid(0.5F * a - 0.25F * b + 0.125F);
  }

 private:
  std::vector<float> values_;
  const float* rows_ = nullptr;
};

// A call is cut into runs of 4 samples, which are enqueued one after the other.
TEST_F(GpuDenseNetworkTest, RunsManyPiecesOfACallFromRows) {
  const auto network = MakeDeviceDenseNetwork({.onnx = LogisticModel().Bytes()},
                                              {.batch_max = 4, .buffer_bytes_max = 0});
  ASSERT_TRUE(network.ok()) << network.status();
  const auto session = *(*network)->NewSession();
  for (const uint32_t samples : {11U, 4U, 1U, 501U}) {
    SCOPED_TRACE(samples);
    const RoomOfRows room(*session, 2 * samples + 3);
    std::vector<float> scores(samples, -1);
    std::byte* const outputs[] = {std::as_writable_bytes(std::span(scores)).data()};
    // As they lie.
    FedInput fed = {.dim = 2, .rows = room.rows()};
    ASSERT_TRUE(session->RunFromRows(samples, {&fed, 1}, outputs).ok());
    for (uint32_t i = 0; i < samples; ++i) EXPECT_NEAR(scores[i], room.Score(i, i + 1), 1e-6) << i;
    // Two of each sample, summed.
    fed.sample_rows = 2;
    ASSERT_TRUE(session->RunFromRows(samples, {&fed, 1}, outputs).ok());
    for (uint32_t i = 0; i < samples; ++i)
      EXPECT_NEAR(scores[i], room.Score(2 * i, 2 * i + 2), 1e-6) << i;
    // Bags of 0 to 3 rows.
    std::vector<BagPlace> bags;
    for (uint32_t i = 0; i < samples; ++i) bags.push_back({i, i + i % 4});
    fed.bags = bags;
    ASSERT_TRUE(session->RunFromRows(samples, {&fed, 1}, outputs).ok());
    for (uint32_t i = 0; i < samples; ++i)
      EXPECT_NEAR(scores[i], room.Score(i, i + i % 4), 1e-6) << i;
    // Sent by the client.
    std::vector<float> sent;
    for (uint32_t i = 0; i < samples; ++i)
      sent.push_back(static_cast<float>(i % 7)), sent.push_back(1);
    const FedInput sent_input = {.sent = std::as_bytes(std::span(sent))};
    ASSERT_TRUE(session->RunFromRows(samples, {&sent_input, 1}, outputs).ok());
    for (uint32_t i = 0; i < samples; ++i)
      EXPECT_NEAR(scores[i], Sigmoid(0.5F * sent[2 * i] - 0.125F), 1e-6) << i;
    CheckLogistic(*session, 4);  // and from the host
  }
  const FedInput lacks = {.sent = std::span<const std::byte>()};
  std::vector<float> score(1);
  std::byte* const output[] = {std::as_writable_bytes(std::span(score)).data()};
  EXPECT_EQ(session->RunFromRows(1, {&lacks, 1}, output).code(), absl::StatusCode::kInternal);
}

// Runs a call in parts of `part_samples`, whose samples have `bag` rows each, or 0 to 3 in bags:
// row r of the call is (r % 17 - 8, r % 5). `given_up`: after so many parts, which it does not wait
// for.
void CheckParts(DenseSession& session, uint32_t samples, uint32_t part_samples, uint32_t bag,
                uint32_t given_up = UINT32_MAX) {
  SCOPED_TRACE(testing::Message() << samples << " samples, bags of " << bag);
  ASSERT_TRUE(session.BeginParts(samples).ok());
  const auto stream = static_cast<cudaStream_t>(session.row_room()->stream().handle);
  std::vector<uint32_t> begins = {0};  // of the samples' rows
  for (uint32_t i = 0; i < samples; ++i) begins.push_back(begins.back() + (bag == 0 ? i % 4 : bag));
  const auto value = [](uint32_t row, uint32_t i) {
    return i == 0 ? static_cast<float>(row % 17) - 8 : static_cast<float>(row % 5);
  };
  size_t part = 0;
  for (uint32_t begin = 0; begin < samples; begin += part_samples, ++part) {
    if (part == given_up) return;
    const uint32_t count = std::min(part_samples, samples - begin);
    std::vector<float> rows;
    std::vector<BagPlace> bags;
    for (uint32_t r = begins[begin]; r < begins[begin + count]; ++r)
      rows.push_back(value(r, 0)), rows.push_back(value(r, 1));
    for (uint32_t i = begin; bag == 0 && i < begin + count; ++i)
      bags.push_back({begins[i] - begins[begin], begins[i + 1] - begins[begin]});
    const uint64_t bytes = rows.size() * sizeof(float);
    const auto room = session.row_room()->MakePart({}, bytes, part);
    ASSERT_TRUE(room.ok()) << room.status();
    if (bytes > 0) {
      ASSERT_EQ(cudaMemcpyAsync(room->rows, rows.data(), bytes, cudaMemcpyHostToDevice, stream),
                cudaSuccess);
    }
    const FedInput fed = {
        .dim = 2, .rows = AsAligned<float>(room->rows), .bags = bags, .sample_rows = bag};
    const absl::Status enqueued = session.EnqueuePart({.begin = begin, .count = count}, {&fed, 1});
    ASSERT_TRUE(enqueued.ok()) << enqueued;
  }
  std::vector<float> scores(samples, -1);
  std::byte* const outputs[] = {std::as_writable_bytes(std::span(scores)).data()};
  const absl::Status ended = session.EndParts(outputs);
  ASSERT_TRUE(ended.ok()) << ended;
  for (uint32_t i = 0; i < samples; ++i) {
    float a = 0, b = 0;
    for (uint32_t r = begins[i]; r < begins[i + 1]; ++r) a += value(r, 0), b += value(r, 1);
    ASSERT_NEAR(scores[i], Sigmoid(0.5F * a - 0.25F * b + 0.125F), 1e-6) << i;
  }
}

// Parts of one run and of many.
TEST_F(GpuDenseNetworkTest, RunsCallsInPartsBesideLookups) {
  for (const uint32_t batch_max : {4U, 4096U}) {
    const auto network = MakeDeviceDenseNetwork({.onnx = LogisticModel().Bytes()},
                                                {.batch_max = batch_max, .buffer_bytes_max = 0});
    ASSERT_TRUE(network.ok()) << network.status();
    const auto session = *(*network)->NewSession();
    for (const uint32_t bag : {1U, 2U, 0U}) {
      for (const uint32_t samples : {1U, 14U, 15U, 22U, 100U})
        ASSERT_NO_FATAL_FAILURE(CheckParts(*session, samples, 7, bag));
      ASSERT_NO_FATAL_FAILURE(CheckParts(*session, 5 * batch_max + 3, batch_max - 1, bag));
    }
    CheckLogistic(*session, 4);  // and from the host
  }
}

// Catches: a call that uses what runs of the call before still use.
TEST_F(GpuDenseNetworkTest, ACallInPartsCanBeGivenUp) {
  const auto network = MakeDeviceDenseNetwork({.onnx = LogisticModel().Bytes()}, {.batch_max = 64});
  ASSERT_TRUE(network.ok()) << network.status();
  const auto session = *(*network)->NewSession();
  for (uint32_t parts = 0; parts < 6; ++parts) {
    ASSERT_NO_FATAL_FAILURE(CheckParts(*session, 30'000, 5000, 0, parts));
    ASSERT_NO_FATAL_FAILURE(CheckParts(*session, 20'000, 5000, 2));
    ASSERT_NO_FATAL_FAILURE(CheckParts(*session, 30'000, 5000, 2, parts));
    CheckLogistic(*session, 64);
  }
  ASSERT_NO_FATAL_FAILURE(CheckParts(*session, 30'000, 5000, 0, 4));  // and with the session
}

TEST_F(GpuDenseNetworkTest, RefusesCallsThatItHasNoMemoryFor) {
  const auto network = MakeDeviceDenseNetwork({.onnx = LogisticModel().Bytes()}, {.batch_max = 8});
  ASSERT_TRUE(network.ok()) << network.status();
  const auto session = *(*network)->NewSession();
  const DeviceLimits limits = session->device_limits();
  std::vector<float> x(2 * (limits.samples_max + 1)), scores(limits.samples_max + 1);
  std::byte* const outputs[] = {std::as_writable_bytes(std::span(scores)).data()};
  const auto fed = [&](uint64_t samples) {
    return FedInput{.sent = std::as_bytes(std::span(x).first(2 * samples))};
  };
  for (const uint64_t samples : {uint64_t{0}, limits.samples_max + 1}) {
    const FedInput input = fed(samples);
    EXPECT_EQ(session->RunFromRows(static_cast<uint32_t>(samples), {&input, 1}, outputs).code(),
              absl::StatusCode::kInternal);
  }
  EXPECT_EQ(session->BeginParts(static_cast<uint32_t>(limits.parts_total_max + 1)).code(),
            absl::StatusCode::kInternal);
  ASSERT_TRUE(session->BeginParts(static_cast<uint32_t>(limits.samples_max)).ok());
  const FedInput part = fed(limits.part_samples_max + 1);
  EXPECT_EQ(session->EnqueuePart({.count = limits.part_samples_max + 1}, {&part, 1}).code(),
            absl::StatusCode::kInternal);
  const FedInput most = fed(limits.samples_max);
  const absl::Status ran =
      session->RunFromRows(static_cast<uint32_t>(limits.samples_max), {&most, 1}, outputs);
  EXPECT_TRUE(ran.ok()) << ran;
  EXPECT_NEAR(scores[limits.samples_max - 1], Sigmoid(0.125F), 1e-6);
}

TEST_F(GpuDenseNetworkTest, ASessionTakesItsRowsFromTheBudgetWhenItIsMade) {
  const auto budget = std::make_shared<ByteBudget>("rows", uint64_t{3} << 20);
  const auto network = MakeDeviceDenseNetwork(
      {.onnx = LogisticModel().Bytes()},
      {.batch_max = 8, .row_bytes = uint64_t{2} << 20, .row_budget = budget});
  ASSERT_TRUE(network.ok()) << network.status();
  const auto first = (*network)->NewSession();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*network)->NewSession().status().code(), absl::StatusCode::kResourceExhausted);
}

// In the largest runs, cuBLASLt would get 0.66 million matrices at once.
TEST_F(GpuDenseNetworkTest, CutsCallsIntoLargeRunsOfManyMatrices) {
  NetworkWriter writer(1);
  const std::string a = writer.Input("a", {20, 2, 4});
  const std::string b = writer.Input("b", {20, 4, 2});
  const TestModel model = writer.Done(writer.Node("MatMul", {a, b}), {20, 2, 2});
  const auto network = MakeDeviceDenseNetwork({.onnx = model.Bytes()}, {.batch_max = 4});
  ASSERT_TRUE(network.ok()) << network.status();
  const auto session = (*network)->NewSession();
  ASSERT_TRUE(session.ok()) << session.status();
  constexpr uint32_t kSamples = 49'000;
  constexpr size_t kMatrices = size_t{20} * kSamples;
  std::vector<float> left(kMatrices * 8), right(kMatrices * 8), got(kMatrices * 4, -1);
  for (size_t i = 0; i < left.size(); ++i) {
    left[i] = static_cast<float>(i % 7) - 3;
    right[i] = static_cast<float>(i % 11) - 5;
  }
  const FedInput inputs[] = {{.sent = std::as_bytes(std::span(left))},
                             {.sent = std::as_bytes(std::span(right))}};
  std::byte* const outputs[] = {std::as_writable_bytes(std::span(got)).data()};
  const absl::Status ran = (*session)->RunFromRows(kSamples, inputs, outputs);
  ASSERT_TRUE(ran.ok()) << ran;
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t matrix = i / 4 * 8, row = i / 2 % 2, column = i % 2;
    float expected = 0;  // of small integers: exact
    for (size_t k = 0; k < 4; ++k)
      expected += left[matrix + 4 * row + k] * right[matrix + 2 * k + column];
    ASSERT_EQ(got[i], expected) << i;
  }
}

TEST(GpuDenseNetworkRefusalTest, NamesTheOperatorThatItLacks) {
  TestModel model = LogisticModel();
  model.graph().mutable_node(2)->set_op_type("CumSum");
  model.graph().mutable_node(2)->add_input("b");
  const absl::Status status = MakeDeviceDenseNetwork({.onnx = model.Bytes()}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("(CumSum)"));
}

}  // namespace
}  // namespace hps
