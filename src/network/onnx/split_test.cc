#include "network/onnx/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/bytes.h"
#include "network/onnx/test_models.h"

namespace hps {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr int kFloat = ::onnx::TensorProto::FLOAT;
constexpr int kInt64 = ::onnx::TensorProto::INT64;

OnnxModel Taken(const std::string& bytes) {
  absl::StatusOr<OnnxModel> model = OnnxModel::Parse(AsBytes(std::string_view(bytes)), {});
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

std::vector<std::string> InputsOf(const OnnxGraph& graph) {
  std::vector<std::string> names;
  for (const OnnxValue& input : graph.inputs) names.push_back(input.name);
  return names;
}

// A table of 4 rows of 2, read by `keys`, plus x [batch, 2].
struct WideModel {
  TestModel model;

  WideModel() {
    model.Input("x", kFloat, {-1, 2});
    model.Floats("user.weight", {4, 2}, {0, 1, 10, 11, 20, 21, 30, 31});
  }
  OnnxModel Finish(const std::string& rows) {
    model.Node("Add", "y", {"x", rows});
    model.Output("y", kFloat, {-1, 2});
    return Taken(model.Bytes());
  }
};

TEST(OnnxSplitTest, RowsTakeThePlaceOfTheGather) {
  WideModel wide;
  wide.model.Input("id", kInt64, {-1});
  const OnnxModel model = wide.Finish(wide.model.Node("Gather", "g", {"user.weight", "id"}));
  const absl::StatusOr<OnnxSplit> split = SplitOnnx(model);
  ASSERT_TRUE(split.ok()) << split.status();
  ASSERT_EQ(split->tables.size(), 1U);
  const OnnxSplitTable& table = split->tables[0];
  EXPECT_EQ(table.name, "user");
  EXPECT_EQ(table.row_count, 4U);
  EXPECT_EQ(table.dim, 2U);
  EXPECT_EQ(table.pooling, RowPooling::kSum);
  EXPECT_EQ(LoadLittleEndian<float>(table.rows.data() + 12), 11.0F);
  const OnnxModel network = Taken(split->network);
  EXPECT_THAT(InputsOf(network.graph()), UnorderedElementsAre("user_rows", "x"));
  EXPECT_THAT(network.graph().Input("user_rows")->dims, ElementsAre(-1, 2));
  EXPECT_EQ(network.graph().nodes.size(), 1U);
  EXPECT_TRUE(network.graph().constants.empty());
  EXPECT_THAT(split->remarks, Contains(HasSubstr("input 'id' is no longer one")));
}

TEST(OnnxSplitTest, FollowsKeysThroughPartsOfAnInput) {
  WideModel wide;
  wide.model.Input("ids", ::onnx::TensorProto::INT32, {-1, 3});
  wide.model.Integers("one", {}, {1});
  wide.model.Node("Cast", "wide", {"ids"});
  wide.model.Attribute("to", kInt64);
  wide.model.Node("Gather", "column", {"wide", "one"});
  wide.model.Attribute("axis", 1);
  const OnnxModel model = wide.Finish(wide.model.Node("Gather", "g", {"user.weight", "column"}));
  const absl::StatusOr<OnnxSplit> split = SplitOnnx(model);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(split->remarks, Contains(HasSubstr("[batch] of input 'ids' by Cast, Gather")));
  EXPECT_EQ(Taken(split->network).graph().nodes.size(), 1U);
}

TEST(OnnxSplitTest, SumsAndMeansOverBagsBecomePooling) {
  for (const bool is_sum : {true, false}) {
    WideModel wide;
    wide.model.Input("ids", kInt64, {-1, 3});
    wide.model.Node("Gather", "g", {"user.weight", "ids"});
    wide.model.Integers("axes", {1}, {1});
    if (is_sum) {
      wide.model.Node("ReduceSum", "bag", {"g", "axes"});
    } else {
      wide.model.proto().mutable_opset_import(0)->set_version(18);
      wide.model.Node("ReduceMean", "bag", {"g", "axes"});
    }
    wide.model.Attribute("keepdims", 0);
    const absl::StatusOr<OnnxSplit> split = SplitOnnx(wide.Finish("bag"));
    ASSERT_TRUE(split.ok()) << split.status();
    EXPECT_EQ(split->tables[0].pooling, is_sum ? RowPooling::kSum : RowPooling::kMean);
    EXPECT_THAT(Taken(split->network).graph().Input("user_rows")->dims, ElementsAre(-1, 2));
  }
}

TEST(OnnxSplitTest, RowsThatAreNotSummedStayApart) {
  WideModel wide;
  wide.model.Input("ids", kInt64, {-1, 3});
  wide.model.Node("Gather", "g", {"user.weight", "ids"});
  wide.model.Integers("axes", {1}, {2});
  wide.model.Node("ReduceSum", "s", {"g", "axes"});
  wide.model.Attribute("keepdims", 0);
  wide.model.Output("s", kFloat, {-1, 3});
  const absl::StatusOr<OnnxSplit> split = SplitOnnx(Taken(wide.model.Bytes()));
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->tables[0].pooling, RowPooling::kNone);
  EXPECT_THAT(Taken(split->network).graph().Input("user_rows")->dims, ElementsAre(-1, 3, 2));
}

TEST(OnnxSplitTest, OneWeightByTwoKeysIsTwoTables) {
  WideModel wide;
  wide.model.Input("a", kInt64, {-1});
  wide.model.Input("b", kInt64, {-1});
  wide.model.Node("Gather", "ga", {"user.weight", "a"});
  wide.model.Node("Gather", "gb", {"user.weight", "b"});
  wide.model.Node("Gather", "again", {"user.weight", "a"});
  wide.model.Node("Sum", "all", {"ga", "gb", "again"});
  const absl::StatusOr<OnnxSplit> split = SplitOnnx(wide.Finish("all"));
  ASSERT_TRUE(split.ok()) << split.status();
  ASSERT_EQ(split->tables.size(), 2U);
  EXPECT_EQ(split->tables[1].name, "user_2");
  EXPECT_THAT(split->remarks, Contains(HasSubstr("read by several keys")));
  EXPECT_THAT(split->remarks, Contains(HasSubstr("a negative id")).Times(1));
  const OnnxModel network = Taken(split->network);
  EXPECT_THAT(network.graph().nodes[0].inputs,
              ElementsAre("user_rows", "user_2_rows", "user_rows"));
}

TEST(OnnxSplitTest, HalfRowsAreCastBack) {
  WideModel wide;
  wide.model.Input("id", kInt64, {-1});
  wide.model.graph().mutable_initializer(0)->set_data_type(::onnx::TensorProto::FLOAT16);
  wide.model.graph().mutable_initializer(0)->mutable_raw_data()->resize(16);
  wide.model.Node("Gather", "g", {"user.weight", "id"});
  wide.model.Node("Cast", "f", {"g"});
  wide.model.Attribute("to", kFloat);
  const absl::StatusOr<OnnxSplit> split = SplitOnnx(wide.Finish("f"));
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->tables[0].element, OnnxElement::kFloat16);
  const OnnxModel network = Taken(split->network);
  EXPECT_EQ(network.graph().Input("user_rows")->element, OnnxElement::kFloat32);
  ASSERT_EQ(network.graph().nodes.size(), 3U);
  EXPECT_EQ(network.graph().nodes[0].Integer("to", 0), ::onnx::TensorProto::FLOAT16);
}

TEST(OnnxSplitTest, AnInputThatIsReadOtherwiseStays) {
  WideModel wide;
  wide.model.Input("id", kInt64, {-1});
  wide.model.Node("Cast", "as_float", {"id"});
  wide.model.Attribute("to", kFloat);
  wide.model.Output("as_float", kFloat, {-1});
  const absl::StatusOr<OnnxSplit> split =
      SplitOnnx(wide.Finish(wide.model.Node("Gather", "g", {"user.weight", "id"})));
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(InputsOf(Taken(split->network).graph()), Contains("id"));
  EXPECT_THAT(split->remarks, Not(Contains(HasSubstr("no longer"))));
}

// The reason why nothing was divided.
std::string WhyNot(const OnnxModel& model) {
  const absl::StatusOr<OnnxSplit> split = SplitOnnx(model);
  return split.ok() ? "it was divided" : std::string(split.status().message());
}

TEST(OnnxSplitTest, SaysWhyATableStays) {
  {
    WideModel wide;
    wide.model.Input("id", kInt64, {-1});
    wide.model.Integers("four", {}, {4});
    wide.model.Node("Mod", "hashed", {"id", "four"});
    EXPECT_THAT(WhyNot(wide.Finish(wide.model.Node("Gather", "g", {"user.weight", "hashed"}))),
                HasSubstr("read by 'g' (Gather): its indices are computed by 'hashed' (Mod)"));
  }
  {
    WideModel wide;
    wide.model.Integers("ids", {2}, {1, 2});
    EXPECT_THAT(WhyNot(wide.Finish(wide.model.Node("Gather", "g", {"user.weight", "ids"}))),
                HasSubstr("its indices are constant"));
  }
  {
    WideModel wide;
    wide.model.Input("ids", kInt64, {-1, 2});
    wide.model.Integers("flat", {1}, {-1});
    wide.model.Node("Reshape", "all", {"ids", "flat"});
    EXPECT_THAT(WhyNot(wide.Finish(wide.model.Node("Gather", "g", {"user.weight", "all"}))),
                HasSubstr("computed by 'all' (Reshape)"));
  }
  {
    WideModel wide;
    wide.model.Input("ids", kInt64, {-1, 2, 3});
    EXPECT_THAT(WhyNot(wide.Finish(wide.model.Node("Gather", "g", {"user.weight", "ids"}))),
                HasSubstr("its keys have 3 dimensions"));
  }
  EXPECT_THAT(WhyNot(Taken(LogisticModel().Bytes())), HasSubstr("no embedding table was found"));
}

// What the reader takes can be divided or refused, and what was divided can be read again.
TEST(OnnxSplitTest, SurvivesMutants) {
  WideModel wide;
  wide.model.Input("ids", kInt64, {-1, 3});
  wide.model.Node("Cast", "wide", {"ids"});
  wide.model.Node("Gather", "g", {"user.weight", "wide"});
  wide.model.Integers("axes", {1}, {1});
  wide.model.Node("ReduceSum", "bag", {"g", "axes"});
  wide.model.Attribute("keepdims", 0);
  wide.Finish("bag");
  const std::string good = wide.model.Bytes();
  std::mt19937_64 random(20);
  int divided = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string bytes = good;
    for (uint64_t change = random() % 3 + 1; change > 0; --change)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    const absl::StatusOr<OnnxModel> model = OnnxModel::Parse(AsBytes(std::string_view(bytes)), {});
    if (!model.ok()) continue;
    const absl::StatusOr<OnnxSplit> split = SplitOnnx(*model);
    if (!split.ok()) continue;
    ++divided;
    const auto network = OnnxModel::Parse(AsBytes(std::string_view(split->network)), {});
    EXPECT_TRUE(network.ok()) << network.status();
  }
  EXPECT_GT(divided, 0);
}

}  // namespace
}  // namespace hps
