#include "network/onnx/operators.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(OnnxOperatorsTest, AreThoseOfAList) {
  for (const char* op : {"Abs", "Gemm", "Sigmoid", "Softmax", "Xor", "GRU"})
    EXPECT_TRUE(IsKnownOnnxOperator(op)) << op;
  for (const char* op : {"", "If", "Loop", "Scan", "RandomNormal", "gemm", "Zzz", "SequenceAt"})
    EXPECT_FALSE(IsKnownOnnxOperator(op)) << op;
}

}  // namespace
}  // namespace hps
