// Feeds the fuzz target what broke parsers before, and tens of thousands of mutants of valid
// messages. libFuzzer (CMake option HPS_FUZZ, clang) goes on from there.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "server/grpc_codec/fuzz_target.h"
#include "server/grpc_codec/test_infer_messages.h"
#include "testing/fuzz_replay.h"
#include "testing/trials.h"

namespace hps::server {
namespace {

const uint64_t kMutants = Trials(50'000);

bool Feed(const std::string& message) { return FuzzGrpcInfer(AsBytes(message)); }

std::vector<std::string> GoodMessages() {
  return {Field(1, "m"),
          Request(0),
          Request(3),
          Input("u", "INT32", {2}, Field(5, Number(2, 7) + Number(2, 8))),
          Input("t", "UINT64", {2, 2}, Field(5, Field(5, "\x01\x02\x03\x04"))),
          Input("f", "FP32", {1}, Field(5, Field(6, std::string(4, '\x3f')))),
          Input("b", "BOOL", {2}, Field(5, Number(1, 1) + Number(1, 0))),
          Request(33) + Field(4, Parameter("triton_enable_empty_final_response", Number(1, 1))) +
              Number(100, 5) + Field(200, "x")};
}

std::vector<std::string> BadMessages() {
  std::string nested = "x";
  for (int i = 0; i < 100; ++i) nested = Field(5, nested);
  const std::string huge_length = "\xff\xff\xff\xff\xff\xff\xff\xff\x7f";
  return {"\xff",
          std::string("\x0a\x7fm"),
          "\x0b",                   // a group
          std::string(11, '\xff'),  // a varint without an end
          std::string(1, '\0'),     // field 0
          nested,
          "\x0a" + huge_length,
          "\x2a" + huge_length + "x",
          Field(5, "\x1a" + huge_length),
          Input("t", "INT64", {-1}),
          Input("t", "INT64", {int64_t{1} << 62, 8}, Field(5, Field(3, "\x80"))),
          Input("f", "FP32", {1}, Field(5, Field(6, "123"))),
          Request(3) + Input("u", "INT32", {1}, Field(5, Number(2, 7))),  // raw and typed
          Field(3, "\xc3\x28")};
}

TEST(GrpcInferFuzzTest, GoodAndBadMessages) {
  for (const std::string& message : GoodMessages()) {
    EXPECT_TRUE(Feed(message)) << testing::PrintToString(message);
  }
  EXPECT_TRUE(Feed(""));
  for (const std::string& message : BadMessages()) {
    EXPECT_FALSE(Feed(message)) << testing::PrintToString(message);
  }
}

TEST(GrpcInferFuzzTest, Mutants) {
  std::mt19937_64 random(TestSeed());
  const std::vector<std::string> seeds = GoodMessages();
  std::vector<std::string> pieces = BadMessages();
  pieces.insert(pieces.end(), seeds.begin(), seeds.end());
  uint64_t accepted = 0;
  for (uint64_t i = 0; i < kMutants; ++i) {
    accepted += Feed(Mutated(seeds[random() % seeds.size()], pieces, random));
  }
  // Both ways through the codec were taken.
  EXPECT_GT(accepted, kMutants / 100);
  EXPECT_LT(accepted, kMutants);
}

}  // namespace
}  // namespace hps::server
