#include "inference/batch_executor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "hps/store.h"
#include "hps/transfer.h"
#include "inference/batch_core.h"
#include "inference/request_plan.h"
#include "network/onnx/test_models.h"
#include "testing/test_directory.h"

namespace hps {
namespace {

// A store with the tables m/a (dim 2) and m/b (dim 3), keys 0 to 99, -7 and 2^32 - 7: element i of
// row k is 10 k + i, and 1000 more in m/b.
class BatchExecutorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_.store.path = directory_.Path("store");
    config_.l2.bytes_max = uint64_t{8} << 20;
    config_.l2.huge_pages = false;
    config_.lookup.timeout = std::chrono::minutes(1);
    Import("m/a", 2, 0);
    Import("m/b", 3, 1000);
    auto store = Store::Open(config_, OpenMode::kServe);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    ASSERT_TRUE(store_->models().LoadAll().ok());
    auto version = ModelVersion::Open(store_->models(), "m", {.keys_max = kKeysMax});
    ASSERT_TRUE(version.ok()) << version.status();
    version_ = *std::move(version);
  }

  void Import(const std::string& table, uint32_t dim, float base) {
    std::vector<Key> keys = {-7, (Key{1} << 32) - 7};
    for (Key key = 0; key < 100; ++key) keys.push_back(key);
    std::vector<float> rows;
    for (const Key key : keys)
      for (uint32_t i = 0; i < dim; ++i) rows.push_back(Element(base, key, i));
    const TableInMemory memory = {.keys = keys, .rows = std::as_bytes(std::span(rows)), .dim = dim};
    const auto report = ImportTables(config_, {.name = table, .memory = memory});
    ASSERT_TRUE(report.ok()) << report.status();
  }

  static float Element(float base, Key key, uint32_t i) {
    return base + 10.0F * static_cast<float>(key) + static_cast<float>(i);
  }

  // A request with its plan, its outputs and their memory.
  struct Asked final : PlannedRequest {
    void Finish(const absl::Status& status) override { ended = status; }

    absl::Status ended = absl::UnknownError("not ended");
    TensorRequest request{};
    std::vector<OutputTensor> outputs{};
    std::vector<std::vector<float>> memory{};
  };

  static void AddTensor(Asked& asked, std::string_view name, Datatype datatype, int64_t count,
                        std::span<const std::byte> bytes) {
    InputTensor& input = asked.request.inputs.emplace_back();
    input.name = name;
    input.datatype = datatype;
    input.shape = {.dims = {count}, .dim_count = 1};
    input.bytes = bytes;
  }

  void Plan(Asked& asked) {
    const absl::Status planned = PlanRequest(*version_, {.response_bytes_max = 1 << 20},
                                             asked.request, asked.outputs, asked.plan);
    ASSERT_TRUE(planned.ok()) << planned;
    for (OutputTensor& output : asked.outputs) {
      std::vector<float>& memory = asked.memory.emplace_back(output.byte_count / 4 + 1, -1.0F);
      output.data = std::as_writable_bytes(std::span(memory)).data();
    }
  }

  void LookUp(const std::vector<ExecutionPlan*>& plans, Deadline deadline = kNoDeadline) {
    const absl::Status looked_up = executor_.LookUp(*version_, plans, {.deadline = deadline});
    ASSERT_TRUE(looked_up.ok()) << looked_up;
  }

  static constexpr size_t kKeysMax = 16;

  TestDirectory directory_;
  Config config_;
  std::unique_ptr<Store> store_;
  ModelVersionRef version_;
  BatchExecutor executor_{{.slot = 0, .keys_max = kKeysMax, .clock = &RealClock()}};
};

TEST_F(BatchExecutorTest, LooksUpRequestsOfAllConventionsTogether) {
  // By table, in more than one lookup.
  std::vector<Key> many;
  for (Key key = 0; key < 40; ++key) many.push_back(99 - key);
  Asked by_table;
  AddTensor(by_table, "a", Datatype::kInt64, 40, std::as_bytes(std::span(many)));
  // By KEYS, at an odd address; the table's own rows, the joint ones and both statuses.
  const std::vector<Key> keys = {7, 1000, 8};
  std::vector<std::byte> odd(1 + keys.size() * sizeof(Key));
  std::memcpy(odd.data() + 1, keys.data(), odd.size() - 1);
  const std::vector<int32_t> counts = {2, 1};
  Asked joint;
  AddTensor(joint, "KEYS", Datatype::kInt64, 3, std::span(odd).subspan(1));
  AddTensor(joint, "NUMKEYS", Datatype::kInt32, 2, std::as_bytes(std::span(counts)));
  joint.request.output_names = {"OUTPUT0", "a", "a.status", "OUTPUT0.status"};
  Plan(by_table);
  Plan(joint);

  ASSERT_NO_FATAL_FAILURE(LookUp({&by_table.plan, &joint.plan}));
  joint.plan.CopyJointOutputs();

  for (size_t i = 0; i < many.size(); ++i) {
    EXPECT_EQ(by_table.memory[0][2 * i], Element(0, many[i], 0));
    EXPECT_EQ(by_table.memory[0][2 * i + 1], Element(0, many[i], 1));
  }
  const std::vector<float> rows = {70, 71, 0, 0, 1080, 1081, 1082, -1};
  EXPECT_EQ(joint.memory[0], rows);
  EXPECT_EQ(joint.memory[1], (std::vector<float>{70, 71, 0, 0, -1}));
  const auto* status = joint.outputs[3].data;
  EXPECT_EQ(std::memcmp(status, joint.outputs[2].data, 2), 0);
  EXPECT_EQ(KeyStatus{std::to_integer<uint8_t>(status[1])}, KeyStatus::kAbsent);
  EXPECT_NE(KeyStatus{std::to_integer<uint8_t>(status[0])}, KeyStatus::kAbsent);
  EXPECT_EQ(executor_.counts()[KeyStatus::kAbsent], 1U);
  EXPECT_EQ(executor_.counts()[KeyStatus::kHitL2] + executor_.counts()[KeyStatus::kHitL3], 42U);
  EXPECT_EQ(by_table.plan.degraded_count, 0U);
  EXPECT_EQ(joint.plan.degraded_count, 0U);
}

// Keys of 32 bits, which need not be aligned, in more than one lookup.
TEST_F(BatchExecutorTest, KeysOf32BitsAreWidened) {
  std::vector<uint32_t> without_sign = {static_cast<uint32_t>(-7)};
  std::vector<int32_t> with_sign = {-7};
  for (int32_t key = 0; key < 20; ++key) {
    without_sign.push_back(static_cast<uint32_t>(key));
    with_sign.push_back(key);
  }
  std::vector<std::byte> odd(1 + 21 * sizeof(uint32_t));
  std::memcpy(odd.data() + 1, without_sign.data(), odd.size() - 1);
  Asked by_table;
  AddTensor(by_table, "a", Datatype::kUint32, 21, std::span(odd).subspan(1));
  const std::vector<int32_t> counts = {1, 20};
  Asked joint;
  AddTensor(joint, "KEYS", Datatype::kInt32, 21, std::as_bytes(std::span(with_sign)));
  AddTensor(joint, "NUMKEYS", Datatype::kInt32, 2, std::as_bytes(std::span(counts)));
  Plan(by_table);
  Plan(joint);
  ASSERT_NO_FATAL_FAILURE(LookUp({&by_table.plan, &joint.plan}));
  EXPECT_EQ(by_table.memory[0][0], Element(0, (Key{1} << 32) - 7, 0));
  EXPECT_EQ(joint.memory[0][0], Element(0, -7, 0));
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(by_table.memory[0][2 * i + 2], Element(0, static_cast<Key>(i), 0)) << i;
    EXPECT_EQ(joint.memory[0][3 * i + 2], Element(1000, static_cast<Key>(i), 0)) << i;
  }
}

// A deadline in the past leaves what only level 3 has: each request knows how many rows it lacks.
TEST_F(BatchExecutorTest, CountsWhatHasNotComePerRequest) {
  const std::vector<Key> some = {1, 2, 3};
  const std::vector<Key> others = {4, 5};
  Asked first;
  AddTensor(first, "a", Datatype::kInt64, 3, std::as_bytes(std::span(some)));
  Asked second;
  AddTensor(second, "b", Datatype::kInt64, 2, std::as_bytes(std::span(others)));
  Plan(first);
  Plan(second);
  ASSERT_NO_FATAL_FAILURE(LookUp({&first.plan, &second.plan}, Deadline::min()));
  EXPECT_EQ(first.plan.degraded_count, 3U);
  EXPECT_EQ(second.plan.degraded_count, 2U);
  EXPECT_EQ(first.memory[0], (std::vector<float>{0, 0, 0, 0, 0, 0, -1}));
}

// score = x [batch, keys, 2] as [batch, 6] * 1; only the product tells that it takes three keys.
// The other request of the batch is answered.
TEST_F(BatchExecutorTest, ShapesThatTheNetworkDoesNotTakeAreNamedByTheirInput) {
  TestModel network;
  network.Input("x", ::onnx::TensorProto::FLOAT, {-1, -1, 2});
  network.Floats("w", {6, 1}, std::vector<float>(6, 1.0F));
  network.Node("MatMul", "score", {network.Node("Flatten", "flat", {"x"}), "w"});
  network.Output("score", ::onnx::TensorProto::FLOAT, {-1, 1});
  auto model = store_->models().Open("m");
  ASSERT_TRUE(model.ok()) << model.status();
  auto predictor =
      Predictor::Make(std::make_shared<const ModelNetwork>(ModelNetwork{
                          .onnx = network.Bytes(),
                          .inputs = {{.name = "x", .table = "a", .pooling = RowPooling::kNone}}}),
                      (*model)->tables(), {});
  if (absl::IsUnimplemented(predictor.status())) GTEST_SKIP() << "no engine in this build";
  ASSERT_TRUE(predictor.ok()) << predictor.status();
  version_ = *ModelVersion::Make(*std::move(model), {.keys_max = kKeysMax}, *std::move(predictor));
  const std::vector<Key> keys = {1, 2, 3, 4, 5, 6};
  Asked good, bad;
  AddTensor(good, "a", Datatype::kInt64, 2, std::as_bytes(std::span(keys)));
  good.request.inputs[0].shape = {.dims = {2, 3}, .dim_count = 2};
  AddTensor(bad, "a", Datatype::kInt64, 3, std::as_bytes(std::span(keys)));
  bad.request.inputs[0].shape = {.dims = {3, 2}, .dim_count = 2};
  Plan(good);
  Plan(bad);
  RequestList<> both;
  for (Asked* asked : {&good, &bad}) both.Push(asked);
  BatchCore core({.slot = 0, .keys_max = kKeysMax, .clock = &RealClock()});
  core.Run(*version_, both, [](Duration, const LookupCounts&) {});
  EXPECT_EQ(bad.ended, absl::InvalidArgumentError("the dense network does not take these shapes: "
                                                  "input 'a' with 2 keys for each sample"));
  ASSERT_TRUE(good.ended.ok()) << good.ended;
  EXPECT_FLOAT_EQ(good.memory[0][0], 2 * (10 + 20 + 30) + 3);
  EXPECT_FLOAT_EQ(good.memory[0][1], 2 * (40 + 50 + 60) + 3);
}

}  // namespace
}  // namespace hps
