#include "network/onnx/client_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "network/onnx/model.h"
#include "network/onnx/test_models.h"

namespace hps {
namespace {

using ::testing::HasSubstr;

constexpr int kFloat = ::onnx::TensorProto::FLOAT;
constexpr int kInt64 = ::onnx::TensorProto::INT64;

// A graph with the inputs "x" and "n", whose last node is `op` of `inputs`.
TestModel With(const std::string& op, const std::vector<std::string>& inputs) {
  TestModel model;
  model.Input("x", kFloat, {-1, 2});
  model.Input("n", kInt64, {-1});
  model.Integers("two", {2}, {1, 2});
  model.Floats("values", {2}, {0, 1});
  model.Node("Abs", "computed", {"n"});
  model.Node("Shape", "shape_of_n", {"computed"});
  model.Node(op, "made", inputs);
  model.Output("made", kFloat, {-1, 2});
  return model;
}

std::string WhyNot(const TestModel& model) {
  const std::string bytes = model.Bytes();
  const auto read = OnnxModel::Parse(AsBytes(std::string_view(bytes)), {});
  return read.ok() ? "it was taken" : std::string(read.status().message());
}

TEST(ClientSizesTest, AreNotTheNumbersOfAnInput) {
  EXPECT_THAT(WhyNot(With("Expand", {"x", "n"})),
              HasSubstr("node 'made' (Expand): its shape is computed from the numbers of input "
                        "'n'"));
  EXPECT_THAT(WhyNot(With("Expand", {"x", "computed"})), HasSubstr("of input 'n'"));
  EXPECT_THAT(WhyNot(With("Tile", {"x", "computed"})), HasSubstr("(Tile): its number of"));
  EXPECT_THAT(WhyNot(With("Pad", {"x", "computed"})), HasSubstr("(Pad): its padding"));
  EXPECT_THAT(WhyNot(With("OneHot", {"n", "n", "values"})), HasSubstr("(OneHot): its depth"));
  EXPECT_THAT(WhyNot(With("ConstantOfShape", {"computed"})),
              HasSubstr("(ConstantOfShape): its shape"));
}

TEST(ClientSizesTest, MayBeConstantsAndShapes) {
  for (const char* op : {"Expand", "Tile", "Pad"}) {
    EXPECT_EQ(WhyNot(With(op, {"x", "two"})), "it was taken") << op;
    EXPECT_EQ(WhyNot(With(op, {"x", "shape_of_n"})), "it was taken") << op;
  }
  EXPECT_EQ(WhyNot(With("OneHot", {"n", "two", "values"})), "it was taken");
  EXPECT_EQ(WhyNot(With("ConstantOfShape", {"shape_of_n"})), "it was taken");
}

}  // namespace
}  // namespace hps
