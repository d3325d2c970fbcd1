#include "hps/model_network.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(ModelNetworkTest, TheDigestIsOfTheFileAndTheInputs) {
  const ModelNetwork network{.onnx = "onnx", .inputs = {{.name = "a", .table = "b"}}};
  const std::string digest = NetworkDigest(network);
  EXPECT_EQ(digest.size(), 32U);
  EXPECT_EQ(NetworkDigest(network), digest);
  ModelNetwork other = network;
  other.onnx = "0nnx";
  EXPECT_NE(NetworkDigest(other), digest);
  other = network;
  other.inputs[0].pooling = RowPooling::kMean;
  EXPECT_NE(NetworkDigest(other), digest);
  // Names do not run into each other.
  other.inputs[0] = {.name = "ab", .table = ""};
  EXPECT_NE(NetworkDigest(other), digest);
}

}  // namespace
}  // namespace hps
