#include "network/onnx/structure.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "network/onnx/test_models.h"

namespace hps {
namespace {

uint64_t StructureBytes(const std::string& bytes) {
  return OnnxStructureBytes(AsBytes(std::string_view(bytes))).value();
}

TEST(OnnxStructureTest, CountsAllButRawWeights) {
  TestModel model = LogisticModel();
  const uint64_t before = StructureBytes(model.Bytes());
  EXPECT_EQ(before, model.Bytes().size() - 12);
  model.Floats("more", {1000}, std::vector<float>(1000));
  EXPECT_LT(StructureBytes(model.Bytes()), before + 40);
  model.graph().mutable_initializer(2)->clear_raw_data();
  for (int i = 0; i < 1000; ++i) model.graph().mutable_initializer(2)->add_float_data(0);
  EXPECT_GT(StructureBytes(model.Bytes()), before + 4000);
}

TEST(OnnxStructureTest, RefusesWhatIsNoMessage) {
  for (const std::string& bytes :
       {std::string("\xff"), std::string("\x3a\x05xy"), std::string("\x3b"),
        std::string("\x09\x01"), std::string(11, '\xff'), std::string("\x08"),
        std::string("\x08\x80"), std::string("\0", 1), std::string("\x08\x01\x3b\x3c"),
        std::string("\x3a\x03\x2a\x02xy"), std::string("\x3a\x02\x2a\x01\x08\x01"),
        std::string("\x3a\x02\x08\x01\0", 5),
        std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x")}) {
    EXPECT_FALSE(OnnxStructureBytes(AsBytes(std::string_view(bytes))).ok());
  }
  EXPECT_EQ(StructureBytes(""), 0U);
}

}  // namespace
}  // namespace hps
