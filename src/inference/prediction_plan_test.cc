#include "inference/prediction_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "inference/execution_plan.h"
#include "inference/model_metadata.h"
#include "inference/model_version.h"
#include "inference/request_plan.h"
#include "inference/test_planned_model.h"
#include "network/onnx/test_models.h"

namespace hps {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kNotFound = absl::StatusCode::kNotFound;

// score [batch, 1] from user_rows [batch, 2] (sum), item_rows [batch, 3, 2] (none), x [batch, 2].
TestModel Network() {
  TestModel model = LogisticModel();
  model.Input("user_rows", ::onnx::TensorProto::FLOAT, {-1, 2});
  model.Input("item_rows", ::onnx::TensorProto::FLOAT, {-1, 3, 2});
  return model;
}

class PredictionPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model = std::make_unique<PlannedModel>(std::vector<TableSpec>{
        {.name = "m/user", .dim = 2}, {.name = "m/item", .dim = 2}, {.name = "m/other", .dim = 4}});
    auto made = Predictor::Make(
        std::make_shared<const ModelNetwork>(ModelNetwork{
            .onnx = Network().Bytes(),
            .inputs = {{.name = "user_rows", .table = "user"},
                       {.name = "item_rows", .table = "item", .pooling = RowPooling::kNone}}}),
        model->tables(), {});
    if (absl::IsUnimplemented(made.status())) GTEST_SKIP() << "no engine in this build";
    ASSERT_TRUE(made.ok()) << made.status();
    version_ = *ModelVersion::Make(std::move(model), {}, *std::move(made));
  }

  template <typename T>
  void Add(std::string_view name, Datatype datatype, const std::vector<int64_t>& dims,
           const std::vector<T>& values) {
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    memory_.emplace_back(bytes.begin(), bytes.end());
    InputTensor& input = request_.inputs.emplace_back();
    input.name = name;
    input.datatype = datatype;
    input.bytes = memory_.back();
    for (const int64_t dim : dims) input.shape.dims[input.shape.dim_count++] = dim;
  }
  void AddKeys(std::string_view name, const std::vector<int64_t>& dims) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    Add(name, Datatype::kInt64, dims, std::vector<int64_t>(static_cast<size_t>(count), 7));
  }
  void AddNumbers(const std::vector<int64_t>& dims, float value = 0.5F) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    Add("x", Datatype::kFp32, dims, std::vector<float>(static_cast<size_t>(count), value));
  }
  absl::Status Plan() { return PlanRequest(*version_, limits_, request_, outputs_, plan_); }
  void ExpectError(absl::StatusCode code, const std::string& part) {
    const absl::Status status = Plan();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    Forget();
  }
  void Forget() {
    request_ = {};
    memory_.clear();
  }

  ModelVersionRef version_;
  PlanLimits limits_{.response_bytes_max = uint64_t{1} << 20};
  std::vector<std::vector<std::byte>> memory_;
  TensorRequest request_;
  std::vector<OutputTensor> outputs_;
  ExecutionPlan plan_;
};

TEST_F(PredictionPlanTest, ByNameWithUniformBags) {
  AddKeys("user", {4, 2});
  AddKeys("item", {4, 3});
  AddNumbers({4, 2});
  ASSERT_TRUE(Plan().ok()) << Plan();
  EXPECT_TRUE(plan_.is_prediction);
  EXPECT_EQ(plan_.prediction.batch, 4U);
  EXPECT_EQ(plan_.key_count, 20U);
  ASSERT_EQ(outputs_.size(), 1U);
  EXPECT_EQ(outputs_[0].name, "score");
  EXPECT_THAT(outputs_[0].shape.values(), ElementsAre(4, 1));
  ASSERT_EQ(plan_.parts.size(), 2U);
  EXPECT_FALSE(plan_.parts[0].rows().is_set());
}

TEST_F(PredictionPlanTest, RaggedBagsAndRowsBesideScores) {
  AddKeys("user", {5});
  Add("user.offsets", Datatype::kInt32, {3}, std::vector<int32_t>{0, 5, 5});
  AddKeys("item", {6});
  Add("item.offsets", Datatype::kInt64, {3}, std::vector<int64_t>{0, 3, 6});
  AddNumbers({2, 2});
  request_.output_names = {"user", "score", "user.status"};
  ASSERT_TRUE(Plan().ok()) << Plan();
  EXPECT_THAT(plan_.prediction.inputs[1].offsets, ElementsAre(0, 5, 5));
  EXPECT_EQ(plan_.prediction.inputs[2].sample_keys, 3U);
  EXPECT_EQ(plan_.prediction_outputs[0], 1U);
  EXPECT_THAT(outputs_[0].shape.values(), ElementsAre(5, 2));
  EXPECT_EQ(outputs_[2].datatype, Datatype::kUint8);
}

TEST_F(PredictionPlanTest, RowsAloneAreAsBefore) {
  AddKeys("other", {3});
  request_.output_names = {"other"};
  ASSERT_TRUE(Plan().ok()) << Plan();
  EXPECT_FALSE(plan_.is_prediction);
}

TEST_F(PredictionPlanTest, AsHugectr) {
  ASSERT_TRUE(HasDesConvention(*version_));
  const auto add = [&](const std::vector<int32_t>& index, int64_t keys) {
    Add("DES", Datatype::kFp32, {1, 4}, std::vector<float>(4, 1.0F));
    AddKeys("CATCOLUMN", {1, keys});
    const auto count = std::ssize(index);
    Add("ROWINDEX", Datatype::kInt32, {1, count}, index);
  };
  add({0, 2, 3, 0, 1, 2, 3, 4, 5, 6}, 9);
  ASSERT_TRUE(Plan().ok()) << Plan();
  EXPECT_EQ(outputs_[0].name, "OUTPUT0");
  EXPECT_THAT(outputs_[0].shape.values(), ElementsAre(2));
  EXPECT_THAT(plan_.prediction.inputs[1].offsets, ElementsAre(0, 2, 3));
  EXPECT_EQ(plan_.prediction.inputs[2].sample_keys, 3U);
  Forget();
  add({0, 2, 3, 0, 1, 2, 3, 4, 6, 6}, 9);
  ExpectError(kInvalid, "one key");
  add({0, 2, 3, 0, 1, 2, 3, 4, 5}, 9);
  ExpectError(kInvalid, "batch x slots + tables");
  add({0, 2, 3, 0, 1, 2, 3, 4, 5, 6}, 8);
  ExpectError(kInvalid, "keys left");
  add({0, 2, 1, 0, 1, 2, 3, 4, 5, 6}, 7);
  ExpectError(kInvalid, "goes back");
}

// Catches: keys of the second table that are read where those of 64 bits would be.
TEST_F(PredictionPlanTest, ColumnsOf32Bits) {
  Add("DES", Datatype::kFp32, {1, 4}, std::vector<float>(4, 1.0F));
  Add("CATCOLUMN", Datatype::kUint32, {1, 8}, std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8});
  Add("ROWINDEX", Datatype::kInt32, {1, 10}, std::vector<int32_t>{0, 1, 2, 0, 1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(Plan().ok()) << Plan();
  ASSERT_EQ(plan_.parts.size(), 2U);
  for (const TablePart& part : plan_.parts) EXPECT_EQ(part.key_type, Datatype::kUint32);
  EXPECT_EQ(plan_.parts[1].keys - plan_.parts[0].keys, 8);
}

// As a load generator asks that wants every output of the model's metadata.
TEST_F(PredictionPlanTest, EveryOutputByName) {
  AddKeys("user", {2});
  AddKeys("item", {2, 3});
  AddKeys("other", {2, 2});
  AddNumbers({2, 2});
  const ModelMetadata model = DescribeModel("m", *version_);
  for (const TensorMetadata& output : model.outputs) request_.output_names.push_back(output.name);
  request_.output_names.push_back("OUTPUT0.status");
  ASSERT_TRUE(Plan().ok()) << Plan();
  EXPECT_TRUE(plan_.is_prediction);
  ASSERT_EQ(outputs_.size(), request_.output_names.size());
  for (size_t i = 0; i < outputs_.size(); ++i)
    EXPECT_EQ(outputs_[i].name, request_.output_names[i]);
  // The rows of all tables in declared order: 2 and 6 of 2 numbers, 4 of 4.
  const OutputTensor& rows = outputs_[outputs_.size() - 2];
  EXPECT_EQ(rows.name, "OUTPUT0");
  EXPECT_THAT(rows.shape.values(), ElementsAre(32));
  EXPECT_THAT(outputs_.back().shape.values(), ElementsAre(12));
  ASSERT_EQ(plan_.parts.size(), 3U);
  EXPECT_EQ(plan_.parts[1].joint_rows.offset_bytes, 16U);
  EXPECT_EQ(plan_.parts[2].joint_rows.offset_bytes, 64U);
  EXPECT_EQ(plan_.parts[2].joint_status.offset_bytes, 8U);
  EXPECT_EQ(plan_.joint_prediction, OutputPlace::kNone);
}

// Catches: a table that is dropped although its rows are in OUTPUT0 only.
TEST_F(PredictionPlanTest, JointRowsBesideScoresHaveEveryTableOfTheRequest) {
  AddKeys("user", {2});
  AddKeys("item", {2, 3});
  AddKeys("other", {2});
  AddNumbers({2, 2});
  request_.output_names = {"score", "OUTPUT0"};
  ASSERT_TRUE(Plan().ok()) << Plan();
  EXPECT_EQ(plan_.parts.size(), 3U);
  EXPECT_EQ(plan_.parts[2].rows().output, 1U);
  request_.output_names = {"score", "OUTPUT0.status"};
  ExpectError(kInvalid, "requires output 'OUTPUT0'");
}

TEST_F(PredictionPlanTest, EveryOutputAsHugectr) {
  const auto add = [&](const std::vector<std::string_view>& names) {
    Add("DES", Datatype::kFp32, {1, 4}, std::vector<float>(4, 1.0F));
    AddKeys("CATCOLUMN", {1, 8});
    Add("ROWINDEX", Datatype::kInt32, {1, 10}, std::vector<int32_t>{0, 1, 2, 0, 1, 2, 3, 4, 5, 6});
    request_.output_names = names;
  };
  for (const bool joint_first : {true, false}) {
    add(joint_first ? std::vector<std::string_view>{"OUTPUT0", "user", "score"}
                    : std::vector<std::string_view>{"score", "user", "OUTPUT0"});
    ASSERT_TRUE(Plan().ok()) << Plan();
    EXPECT_EQ(plan_.prediction_outputs[0], joint_first ? 2U : 0U);
    EXPECT_EQ(plan_.joint_prediction, joint_first ? 0U : 2U);
    EXPECT_THAT(outputs_[plan_.joint_prediction].shape.values(), ElementsAre(2));
    std::vector<float> score = {0.25F, 0.5F}, joint(2);
    outputs_[plan_.prediction_outputs[0]].data = std::as_writable_bytes(std::span(score)).data();
    outputs_[plan_.joint_prediction].data = std::as_writable_bytes(std::span(joint)).data();
    plan_.CopyJointOutputs();
    EXPECT_EQ(joint, score);
    Forget();
  }
  add({"OUTPUT0", "OUTPUT0"});
  ExpectError(kInvalid, "asked for twice");
  add({"OUTPUT0", "OUTPUT0.status"});
  ExpectError(kNotFound, "no output 'OUTPUT0.status'");
  add({"OUTPUT0", "other"});
  ExpectError(kInvalid, "the input 'other' is missing");
}

TEST_F(PredictionPlanTest, KeysOfAllSamplesTogetherGiveNoScores) {
  AddKeys("KEYS", {1, 4});
  Add("NUMKEYS", Datatype::kInt32, {1, 3}, std::vector<int32_t>{1, 3, 0});
  request_.output_names = {"OUTPUT0", "score"};
  ExpectError(kInvalid, "output 'score' is the network's");
}

TEST_F(PredictionPlanTest, WhatIsWrong) {
  AddKeys("user", {4});
  AddKeys("item", {4, 3});
  ExpectError(kInvalid, "'x' is missing");
  AddKeys("item", {4, 3});
  AddNumbers({4, 2});
  ExpectError(kInvalid, "'user' is missing");
  AddKeys("user", {4});
  AddKeys("item", {4, 2});
  AddNumbers({4, 2});
  ExpectError(kInvalid, "takes 3");
  AddKeys("user", {4});
  AddKeys("item", {5, 3});
  AddNumbers({4, 2});
  ExpectError(kInvalid, "its batch is");
  AddKeys("user", {4});
  AddKeys("item", {4, 3});
  AddNumbers({4, 2}, std::nanf(""));
  ExpectError(kInvalid, "NaN");
  AddKeys("user", {4});
  AddKeys("usr", {4});
  ExpectError(kNotFound, "did you mean 'user'");
  AddKeys("user", {2});
  Add("user.offsets", Datatype::kInt64, {3}, std::vector<int64_t>{0, 3, 2});
  ExpectError(kInvalid, "goes back");
  Add("user.offsets", Datatype::kInt64, {3}, std::vector<int64_t>{0, 1, 2});
  ExpectError(kInvalid, "the input 'user' is missing");
}

}  // namespace
}  // namespace hps
