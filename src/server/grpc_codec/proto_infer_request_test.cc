#include "server/grpc_codec/proto_infer_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/limits.h"
#include "server/grpc_codec/test_infer_messages.h"
#include "server/grpc_codec/wire_format.h"

namespace hps::server {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

class InferRequestCodecTest : public testing::Test {
 protected:
  absl::Status Parse(const std::string& message) {
    message_ = message;
    request_ = InferenceRequest();
    return codec_.Parse(AsBytes(message_), unpacked_bytes_max_, &request_);
  }
  void ExpectError(const std::string& message, StatusCode code, const char* text) {
    const absl::Status status = Parse(message);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  }

  std::string message_;
  InferenceRequest request_;
  InferRequestCodec codec_;
  uint64_t unpacked_bytes_max_ = UINT64_MAX;
};

TEST_F(InferRequestCodecTest, ReadsEverythingAsViews) {
  for (const size_t n : {0, 1, 31, 32, 33, 1024}) {
    ASSERT_TRUE(Parse(Request(n)).ok());
    EXPECT_EQ(request_.model, "m");
    EXPECT_EQ(request_.version, "3");
    EXPECT_EQ(request_.id, "id-1");
    EXPECT_EQ(request_.timeout, std::chrono::microseconds(1500));
    ASSERT_EQ(request_.inputs.size(), 1U);
    EXPECT_EQ(request_.inputs[0].name, "t");
    EXPECT_EQ(request_.inputs[0].datatype, Datatype::kInt64);
    EXPECT_THAT(request_.inputs[0].shape.values(), testing::ElementsAre(n));
    EXPECT_EQ(AsText(request_.inputs[0].bytes), Keys(n));
    EXPECT_THAT(request_.output_names, testing::ElementsAre("t", "t.status"));
    if (n == 0) continue;
    EXPECT_GE(AsText(request_.inputs[0].bytes).data(), message_.data());
  }
}

TEST_F(InferRequestCodecTest, TypedContentsPackedOrNot) {
  std::string packed;
  for (const int64_t key : {int64_t{-1}, int64_t{0}, int64_t{300}}) {
    AppendVarint(static_cast<uint64_t>(key), &packed);
  }
  const std::string single = Number(3, ~uint64_t{0}) + Number(3, 0) + Number(3, 300);
  const std::vector<int64_t> expected = {-1, 0, 300};
  for (const std::string& contents : {Field(3, packed), single}) {
    ASSERT_TRUE(Parse(Input("t", "INT64", {3}, Field(5, contents)) +
                      Input("u", "INT32", {2}, Field(5, Number(2, 7) + Number(2, ~uint64_t{0}))))
                    .ok());
    ASSERT_EQ(request_.inputs[0].bytes.size(), 24U);
    EXPECT_EQ(std::memcmp(request_.inputs[0].bytes.data(), expected.data(), 24), 0);
    const std::vector<int32_t> small = {7, -1};
    ASSERT_EQ(request_.inputs[1].bytes.size(), 8U);
    EXPECT_EQ(std::memcmp(request_.inputs[1].bytes.data(), small.data(), 8), 0);
  }
  // Contents before the datatype, and floats.
  const std::string floats(AsText(std::as_bytes(std::span<const float>({1.5F, -2.0F}))));
  ASSERT_TRUE(Parse(Field(5, Field(5, Field(6, floats)) + Field(1, "f") + Field(2, "FP32"))).ok());
  EXPECT_EQ(AsText(request_.inputs[0].bytes), floats);
}

TEST_F(InferRequestCodecTest, OldRequestsLeaveNothingBehind) {
  ASSERT_TRUE(Parse(Input("t", "INT64", {1}, Field(5, Number(3, 5)))).ok());
  ASSERT_TRUE(Parse(Request(2)).ok());
  EXPECT_EQ(AsText(request_.inputs[0].bytes), Keys(2));
}

TEST_F(InferRequestCodecTest, UnknownFieldsAndParametersAreSkipped) {
  ASSERT_TRUE(Parse(Number(100, 5) + Field(200, "x") + Request(1) +
                    Field(4, Parameter("priority", Number(5, 1))))
                  .ok());
  EXPECT_FALSE(codec_.wants_final_mark());
  ASSERT_TRUE(
      Parse(Request(1) + Field(4, Parameter("triton_enable_empty_final_response", Number(1, 1))))
          .ok());
  EXPECT_TRUE(codec_.wants_final_mark());
}

TEST_F(InferRequestCodecTest, WhatIsNotTheMessageIsRefused) {
  ExpectError("\xff", StatusCode::kInvalidArgument, "not such a message");
  ExpectError(Field(1, "m") + "\x0b", StatusCode::kInvalidArgument,
              "not such a message");  // a group
  ExpectError(Number(1, 5), StatusCode::kInvalidArgument, "model name");
  ExpectError(std::string("\x0a\x7fm"), StatusCode::kInvalidArgument, "model name");
  ExpectError(Number(5, 1), StatusCode::kInvalidArgument, "ModelInferRequest");
  ExpectError(Field(3, "\xc3\x28"), StatusCode::kInvalidArgument, "not printable UTF-8");
  ExpectError(Input("t", "INT65", {1}), StatusCode::kInvalidArgument, "INT65");
  ExpectError(Input("t", "INT64", {-2}), StatusCode::kInvalidArgument, "negative");
  ExpectError(Input("t", "INT64", {1}) + Field(7, "") + Field(7, ""), StatusCode::kInvalidArgument,
              "2 entries for 1 inputs");
  ExpectError(Input("t", "INT64", {1}, Field(5, Number(3, 1))) + Field(7, ""),
              StatusCode::kInvalidArgument, "raw_input_contents");
  ExpectError(Input("t", "INT64", {1}, Field(5, Number(2, 1))), StatusCode::kInvalidArgument,
              "another datatype than INT64");
  ExpectError(Input("t", "INT32", {1}, Field(5, Number(2, uint64_t{1} << 31))),
              StatusCode::kInvalidArgument, "no INT32");
  ExpectError(Input("t", "BYTES", {1}, Field(5, Field(8, "x"))), StatusCode::kInvalidArgument,
              "input 't': keys are integers of 32 or 64 bits, not BYTES");
  ExpectError(Input("t", "FP16", {1}, Field(5, Number(2, 1))), StatusCode::kInvalidArgument,
              "input 't': send FP16 in raw_input_contents");
  ExpectError(Input("f", "FP32", {1}, Field(5, Field(6, "123"))), StatusCode::kInvalidArgument,
              "contents");
  ExpectError(Field(4, Parameter("timeout", Number(2, ~uint64_t{0}))), StatusCode::kInvalidArgument,
              "timeout");
  ExpectError(Field(4, Parameter("timeout", Field(3, "1s"))), StatusCode::kInvalidArgument,
              "timeout");
}

TEST_F(InferRequestCodecTest, NamesThatAreRefusedAreNotEchoed) {
  ExpectError(Field(1, "m\xff"), StatusCode::kInvalidArgument, "not printable UTF-8");
  EXPECT_EQ(request_.model, "");
  ExpectError(Field(1, "m") + Field(3, std::string(257, 'i')), StatusCode::kOutOfRange, "257");
  EXPECT_EQ(request_.model, "m");
  EXPECT_EQ(request_.id, "");
}

TEST_F(InferRequestCodecTest, TheHeadTellsWhoAsksAndForHowLong) {
  const std::string whole = Request(100);
  const auto head = [this](std::string_view message) {
    request_ = InferenceRequest();
    codec_.ParseHead(AsBytes(message), &request_);
    EXPECT_TRUE(request_.inputs.empty());
    return absl::StrCat(std::string(request_.model), ",", std::string(request_.id), ",",
                        std::chrono::microseconds(request_.timeout.count() / 1000).count());
  };
  EXPECT_EQ(head(whole), "m,id-1,1500");
  EXPECT_EQ(head(whole.substr(0, whole.size() - 700)), "m,id-1,1500") << "it is cut off";
  for (size_t bytes = 0; bytes < 60; ++bytes) head(whole.substr(0, bytes));
  EXPECT_EQ(head(""), ",,0");
  EXPECT_EQ(head(Field(3, "\xff") + Field(4, Parameter("timeout", Field(3, "1s"))) + Field(1, "n")),
            "n,,0")
      << "what is wrong is left out";
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += Number(9, 1);
  EXPECT_EQ(head(Field(1, "m") + many + Field(3, "id")), "m,,0") << "few fields are looked at";
  // Catches: fields of parameters that are looked at beside those, however many there are.
  const std::string wait = Parameter("timeout", Number(2, 1500));
  EXPECT_EQ(head(Field(4, wait) + Field(3, "id")), ",id,1500");
  EXPECT_EQ(head(Field(4, many + wait) + Field(3, "id")), ",,0");
  EXPECT_EQ(head(Field(4, wait + many) + Field(3, "id")), ",,0") << "it may say something else";
  EXPECT_EQ(head(Field(4, Parameter("x", many)) + Field(3, "id")), ",,0");
  std::string parameters;
  for (int i = 0; i < 1400; ++i) parameters += Field(4, Parameter("x", Number(2, 1)));
  EXPECT_EQ(head(parameters + Field(3, "id")), ",,0") << "each has four fields";
}

TEST_F(InferRequestCodecTest, WhatIsNotServedIsUnimplemented) {
  ExpectError(Field(6, Field(1, "t") + Field(2, Parameter("classification", Number(2, 3)))),
              StatusCode::kUnimplemented, "classification");
  ExpectError(Field(6, Field(1, "t") + Field(2, Parameter("shared_memory_region", Field(3, "r")))),
              StatusCode::kUnimplemented, "shared memory");
  ExpectError(Input("t", "INT64", {1}, Field(4, Parameter("shared_memory_region", Field(3, "r")))),
              StatusCode::kUnimplemented, "shared memory");
}

TEST_F(InferRequestCodecTest, LimitsHold) {
  std::string many;
  for (size_t i = 0; i <= kTensorsPerRequestMax; ++i) many += Input("t", "INT64", {1});
  ExpectError(many, StatusCode::kOutOfRange, "512 inputs");
  many.clear();
  for (size_t i = 0; i <= kTensorsPerRequestMax; ++i) many += Field(6, Field(1, "t"));
  ExpectError(many, StatusCode::kOutOfRange, "512 outputs");
  many.clear();
  for (size_t i = 0; i <= kTensorsPerRequestMax; ++i) many += Field(7, "");
  ExpectError(many, StatusCode::kOutOfRange, "512 raw contents");
  ExpectError(Input("t", "INT64", {1, 1, 1, 1, 1, 1, 1, 1, 1}), StatusCode::kOutOfRange,
              "8 dimensions");
  ExpectError(Field(1, std::string(257, 'm')), StatusCode::kOutOfRange, "257 bytes");
  EXPECT_TRUE(Parse(Field(1, std::string(256, 'm'))).ok());
  // One byte on the wire is eight in memory.
  const std::string numbers(kKeysPerCallMax + 1, '\x01');
  ExpectError(Input("t", "INT64", {1}, Field(5, Field(3, numbers))), StatusCode::kOutOfRange,
              "typed contents");
  // ... and no more than the server takes of a body.
  unpacked_bytes_max_ = 80;
  const auto ones = [](size_t n) {
    return Input("t", "INT64", {static_cast<int64_t>(n)}, Field(5, Field(3, std::string(n, '\1'))));
  };
  EXPECT_TRUE(Parse(ones(10)).ok());
  ExpectError(ones(11), StatusCode::kOutOfRange, "at most 80 bytes");
}

// Catches: memory of refused requests, which thousands of idle calls kept.
TEST_F(InferRequestCodecTest, KeepsLittleForTheNextRequest) {
  constexpr size_t kKeptBytesMax = size_t{16} << 10;
  const std::string numbers(131'072, '\x01');
  ASSERT_TRUE(Parse(Input("t", "INT64", {1}, Field(5, Field(3, numbers)))).ok());
  ASSERT_GE(codec_.unpacked_bytes(), numbers.size() * sizeof(int64_t));
  codec_.Trim();
  EXPECT_LE(codec_.unpacked_bytes(), kKeptBytesMax);
}

TEST_F(InferRequestCodecTest, VeryLongTimeoutIsAYear) {
  ASSERT_TRUE(Parse(Field(4, Parameter("timeout", Number(2, ~uint64_t{0} >> 1)))).ok());
  EXPECT_EQ(request_.timeout, std::chrono::hours(24 * 365));
}

}  // namespace
}  // namespace hps::server
