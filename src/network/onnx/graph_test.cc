#include "network/onnx/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.h"

namespace hps {
namespace {

TEST(OnnxGraphTest, KnowsTheBytesOfElements) {
  EXPECT_EQ(OnnxElementBytes(1), 4U);
  EXPECT_EQ(OnnxElementBytes(7), 8U);
  EXPECT_EQ(OnnxElementBytes(8), 0U);  // strings
  EXPECT_EQ(OnnxElementBytes(-1), 0U);
}

TEST(OnnxGraphTest, ReadsIntegers) {
  const std::vector<int32_t> small = {-1, 5};
  const OnnxTensor tensor{
      .element = OnnxElement::kInt32, .dims = {2}, .bytes = AsBytes(std::span(small))};
  EXPECT_THAT(tensor.Integers(), ::testing::ElementsAre(-1, 5));
  const OnnxTensor floats{
      .element = OnnxElement::kFloat32, .dims = {2}, .bytes = AsBytes(std::span(small))};
  EXPECT_TRUE(floats.Integers().empty());
}

TEST(OnnxGraphTest, AttributesHaveDefaults) {
  const OnnxNode node{.op = "Gather", .integers = {{"axis", {1}}, {"axes", {1, 2}}}};
  EXPECT_EQ(node.Integer("axis", 0), 1);
  EXPECT_EQ(node.Integer("keepdims", 1), 1);
  EXPECT_EQ(node.Integer("axes", 3), 3);
}

}  // namespace
}  // namespace hps
