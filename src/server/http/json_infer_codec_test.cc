#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "server/http/json_infer_request.h"
#include "server/http/json_infer_response.h"

namespace hps::server {
namespace {

class InferCodecTest : public testing::Test {
 protected:
  absl::Status Decode(std::string json, std::string binary = "", size_t bytes_max = 1 << 20) {
    decoder_.Reset();
    request_ = InferenceRequest();
    json_ = std::move(json);
    binary_ = std::move(binary);
    return decoder_.Decode({.json = std::span<char>(json_), .binary = AsBytes(binary_)}, pool_,
                           bytes_max, &request_);
  }

  absl::Status DecodeInput(std::string_view members, std::string binary = "") {
    return Decode(absl::StrCat(R"({"inputs":[{)", std::string(members), "}]}"), std::move(binary));
  }

  BufferPool pool_{{.lent_bytes_max = 1 << 22}};
  std::string json_;
  std::string binary_;
  InferenceRequest request_;
  InferDecoder decoder_;
};

TEST_F(InferCodecTest, ReadsEveryPartOfARequest) {
  ASSERT_TRUE(Decode(R"({"parameters":{"timeout":1500,"binary_data_output":true,"other":[{}]},
      "id":"r\u00e9","unknown":{"a":[1,2]},
      "outputs":[{"name":"o1"},{"name":"o2","parameters":{"binary_data":false,"classification":0}}],
      "inputs":[{"data":[[1,-2]],"name":"a","shape":[1,2],"datatype":"INT64"},
                {"name":"b","shape":[2],"datatype":"INT32","parameters":{"binary_data_size":8}}]})",
                     std::string("\1\0\0\0\2\0\0\0", 8))
                  .ok());
  EXPECT_EQ(request_.id, "r\xc3\xa9");
  EXPECT_EQ(request_.timeout, std::chrono::microseconds(1500));
  EXPECT_EQ(request_.output_names, (std::vector<std::string_view>{"o1", "o2"}));
  EXPECT_TRUE(decoder_.wants_binary("o1"));
  EXPECT_FALSE(decoder_.wants_binary("o2"));
  EXPECT_TRUE(decoder_.wants_binary("another"));
  ASSERT_EQ(request_.inputs.size(), 2u);
  EXPECT_EQ(request_.inputs[0].name, "a");
  EXPECT_EQ(request_.inputs[0].shape.dim_count, 2u);
  EXPECT_EQ(LoadLittleEndian<int64_t>(request_.inputs[0].bytes.data() + 8), -2);
  EXPECT_EQ(request_.inputs[1].datatype, Datatype::kInt32);
  EXPECT_EQ(AsText(request_.inputs[1].bytes).data(), binary_.data());  // a view: nothing is copied
}

TEST_F(InferCodecTest, BinaryTensorsFollowInOrder) {
  ASSERT_TRUE(Decode(R"({"inputs":[
      {"name":"a","shape":[1],"datatype":"UINT8","parameters":{"binary_data_size":1}},
      {"name":"n","shape":[0],"datatype":"INT64","parameters":{"binary_data_size":0}},
      {"name":"s","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":5}},
      {"name":"b","shape":[2],"datatype":"FP16","parameters":{"binary_data_size":4}}]})",
                     "xsssssbbbb")
                  .ok());
  EXPECT_EQ(AsText(request_.inputs[0].bytes), "x");
  EXPECT_EQ(AsText(request_.inputs[2].bytes), "sssss");
  EXPECT_EQ(AsText(request_.inputs[3].bytes), "bbbb");
}

TEST_F(InferCodecTest, SaysThatATimeoutIsANumber) {
  const absl::Status status = Decode(R"({"inputs":[],"parameters":{"timeout":"100"}})");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "parameter 'timeout' is a number of microseconds");
}

TEST_F(InferCodecTest, RefusesWrongRequests) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  for (const char* json :
       {"", "  ", "[]", "{}", "{\"inputs\":{}}", "{\"inputs\":[1]}", "{\"inputs\":[{}]}",
        "{\"inputs\":[]} x", "{\"inputs\":[],\"inputs\":[]}", "{\"inputs\":[],\"id\":1}",
        "{\"inputs\":[],\"parameters\":[]}", "{\"inputs\":[],\"parameters\":{\"timeout\":-1}}",
        "{\"inputs\":[],\"parameters\":{\"timeout\":\"1\"}}", "{\"inputs\":[],\"outputs\":[{}]}",
        "{\"inputs\":[],\"outputs\":[{\"name\":\"\"}]}"}) {
    EXPECT_EQ(Decode(json).code(), invalid) << json;
  }
  for (const char* members :
       {R"("name":"a","shape":[1],"datatype":"INT64")", R"("name":"a","shape":[1],"data":[1])",
        R"("name":"a","datatype":"INT64","data":[1])",
        R"("shape":[1],"datatype":"INT64","data":[1])",
        R"("name":"a","shape":[1],"datatype":"INT65","data":[1])",
        R"("name":"a","shape":[-1],"datatype":"INT64","data":[1])",
        R"("name":"a","shape":[1.5],"datatype":"INT64","data":[1])",
        R"("name":"a","shape":[2],"datatype":"INT64","data":[1])",
        R"("name":"a","shape":[1],"datatype":"INT64","data":[1,2])",
        R"("name":"a","shape":[1],"datatype":"FP16","data":[1])",
        R"("name":"a","shape":[1],"datatype":"BYTES","data":["x"])",
        R"("name":"a","shape":[1000000000],"datatype":"INT64","data":[1])",
        R"("name":"a","shape":[4294967296,4294967296],"datatype":"INT64","data":[1])",
        R"("name":"a","shape":[],"datatype":"INT8","data":1,"parameters":{"binary_data_size":1}})",
        R"("name":"a","shape":[1],"datatype":"INT64","parameters":{"binary_data_size":8}})",
        R"("name":"a","shape":[2],"datatype":"INT64","parameters":{"binary_data_size":8}})"}) {
    EXPECT_EQ(DecodeInput(members).code(), invalid) << members;
  }
  EXPECT_EQ(DecodeInput(R"("name":"a","shape":[1],"datatype":"INT8","data":[1])", "rest").code(),
            invalid);
}

TEST_F(InferCodecTest, AWrongKeyIsSaidWithItsInput) {
  EXPECT_EQ(DecodeInput(R"("name":"user","shape":[2],"datatype":"INT64","data":[1,7.5])").message(),
            "input 'user': expected an integer, found '7.5'");
  EXPECT_TRUE(
      DecodeInput(
          R"("name":"user","shape":[2],"datatype":"INT64","data":["8199580975773293796",7.0])")
          .ok());
  EXPECT_EQ(LoadLittleEndian<int64_t>(request_.inputs[0].bytes.data()), 8199580975773293796);
  EXPECT_EQ(LoadLittleEndian<int64_t>(request_.inputs[0].bytes.data() + 8), 7);
}

TEST_F(InferCodecTest, BoundsNamesAndIds) {
  const std::string longest(kProtocolNameBytesMax, 'a');
  const auto request = [](const std::string& id, const std::string& input,
                          const std::string& output) {
    return absl::StrCat(R"({"id":")", id, R"(","inputs":[{"name":")", input,
                        R"(","shape":[1],"datatype":"INT64","data":[1]}],"outputs":[{"name":")",
                        output, R"("}]})");
  };
  ASSERT_TRUE(Decode(request(longest, longest, longest)).ok());
  EXPECT_EQ(request_.id, longest);
  const std::string longer = longest + "a";
  for (const std::string& json :
       {request(longer, "a", "a"), request("a", longer, "a"), request("a", "a", longer)}) {
    const absl::Status status = Decode(json);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_LT(status.message().size(), 100u);
  }
}

TEST_F(InferCodecTest, WhatOneLargeRequestNeededIsGivenBack) {
  class Call final : public InferenceCall {
   public:
    uint64_t AnswerBytes() const override { return TensorBytes(); }
    void OnDone(const absl::Status&) override {}
  } call;
  std::vector<int> usual(kTensorsKeptMax);
  std::vector<int> large(kTensorsKeptMax + 1);
  ClearTensorList(&usual);
  ClearTensorList(&large);
  EXPECT_EQ(usual.capacity(), kTensorsKeptMax);
  EXPECT_EQ(large.capacity(), 0u);
  call.request.inputs.resize(kInferTensorsMax);
  call.request.output_names.resize(kInferTensorsMax);
  call.outputs.resize(kInferTensorsMax);
  call.Reset();
  EXPECT_EQ(call.request.inputs.capacity() + call.request.output_names.capacity() +
                call.outputs.capacity(),
            0u);
}

TEST_F(InferCodecTest, BoundsTensorsDimensionsAndBytes) {
  const auto out_of_range = absl::StatusCode::kOutOfRange;
  EXPECT_EQ(
      DecodeInput(R"("name":"a","shape":[1,1,1,1,1,1,1,1,1],"datatype":"INT64","data":[1])").code(),
      out_of_range);
  EXPECT_TRUE(
      DecodeInput(R"("name":"a","shape":[1,1,1,1,1,1,1,1],"datatype":"INT64","data":[1])").ok());
  const auto many = [](const char* list, size_t count) {
    std::string json = absl::StrCat("{\"inputs\":[],\"", list, "\":[");
    if (std::string(list) == "inputs") json = "{\"inputs\":[";
    for (size_t i = 0; i < count; ++i) {
      absl::StrAppend(&json, i == 0 ? "" : ",",
                      R"({"name":"a","shape":[1],"datatype":"INT8","data":[1]})");
    }
    return json + "]}";
  };
  EXPECT_TRUE(Decode(many("inputs", kInferTensorsMax)).ok());
  EXPECT_EQ(Decode(many("inputs", kInferTensorsMax + 1)).code(), out_of_range);
  EXPECT_TRUE(Decode(many("outputs", kInferTensorsMax)).ok());
  EXPECT_EQ(Decode(many("outputs", kInferTensorsMax + 1)).code(), out_of_range);
  std::string ones = "[1";
  for (int i = 1; i < 200; ++i) ones += ",1";
  const std::string json =
      R"({"inputs":[{"name":"a","shape":[200],"datatype":"INT64","data":)" + ones + "]}]}";
  EXPECT_TRUE(Decode(json, "", 1600).ok());
  EXPECT_EQ(Decode(json, "", 1599).code(), out_of_range);
}

TEST_F(InferCodecTest, ShedsWhenThePoolIsEmpty) {
  const auto held = *pool_.Acquire(1 << 22, BufferPool::Use::kRequest);
  EXPECT_EQ(DecodeInput(R"("name":"a","shape":[1],"datatype":"INT64","data":[1])").code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(InferCodecTest, SaysWhatItDoesNotHave) {
  const auto unimplemented = absl::StatusCode::kUnimplemented;
  EXPECT_EQ(DecodeInput(R"("name":"a","shape":[1],"datatype":"INT64",
                           "parameters":{"shared_memory_region":"r"})")
                .code(),
            unimplemented);
  EXPECT_EQ(
      Decode(R"({"inputs":[],"outputs":[{"name":"o","parameters":{"classification":3}}]})").code(),
      unimplemented);
  EXPECT_EQ(Decode(R"({"inputs":[],"outputs":[{"name":"o",
                       "parameters":{"shared_memory_region":"r"}}]})")
                .code(),
            unimplemented);
}

class Call final : public InferenceCall {
 public:
  uint64_t AnswerBytes() const override { return TensorBytes(); }
  void OnDone(const absl::Status&) override {}
};

TEST_F(InferCodecTest, WritesAnswers) {
  ASSERT_TRUE(Decode(R"({"inputs":[],"outputs":[{"name":"r","parameters":{"binary_data":true}},)"
                     R"({"name":"s"}]})")
                  .ok());
  Call call;
  call.request.id = "1\"";
  call.request.model = "m";
  call.model_version = "7";
  std::vector<std::byte> memory(16, std::byte{3});
  call.outputs.resize(2);
  call.outputs[0] = {.name = "r", .shape = {{2, 1}, 2}, .byte_count = 8, .data = memory.data()};
  call.outputs[1] = {.name = "s",
                     .datatype = Datatype::kUint8,
                     .shape = {{2}, 1},
                     .byte_count = 2,
                     .data = memory.data() + 8};
  std::string out;
  uint64_t binary_bytes = 0;
  ASSERT_TRUE(EncodeAnswer(call, decoder_, 1000, &out, &binary_bytes).ok());
  EXPECT_EQ(out,
            R"({"id":"1\"","model_name":"m","model_version":"7","outputs":[)"
            R"({"name":"r","datatype":"FP32","shape":[2,1],"parameters":{"binary_data_size":8}},)"
            R"({"name":"s","datatype":"UINT8","shape":[2],"data":[3,3]}]})");
  EXPECT_EQ(binary_bytes, 8u);
  EXPECT_EQ(EncodeAnswer(call, decoder_, 10, &out, &binary_bytes).code(),
            absl::StatusCode::kOutOfRange);
  call.outputs[1].datatype = Datatype::kBf16;
  EXPECT_EQ(EncodeAnswer(call, decoder_, 1000, &out, &binary_bytes).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(InferCodecTest, WritesLongListsInPieces) {
  ASSERT_TRUE(Decode(R"({"inputs":[]})").ok());
  Call call;
  std::vector<std::byte> memory((2 << 20) + 3, std::byte{1});
  call.outputs.push_back({.name = "s",
                          .datatype = Datatype::kUint8,
                          .shape = {{(2 << 20) + 3}, 1},
                          .byte_count = memory.size(),
                          .data = memory.data()});
  std::string out;
  uint64_t binary_bytes = 0;
  ASSERT_TRUE(EncodeAnswer(call, decoder_, 1 << 24, &out, &binary_bytes).ok());
  std::string expected = "\"data\":[1";
  for (size_t i = 1; i < memory.size(); ++i) expected += ",1";
  EXPECT_TRUE(out.ends_with(expected + "]}]}"));
}

TEST_F(InferCodecTest, NoAnswerIsLongerThanWasSaid) {
  ASSERT_TRUE(Decode(R"({"id":"\u0001\u0002","inputs":[]})").ok());
  Call call;
  call.request.id = request_.id;
  call.request.model = "m";
  call.model_version = "18446744073709551615";
  std::vector<std::byte> memory(size_t{1} << 16);
  std::mt19937_64 random(1);
  for (std::byte& byte : memory) byte = static_cast<std::byte>(random());
  // The longest numbers there are.
  for (const Datatype datatype :
       {Datatype::kFp32, Datatype::kFp64, Datatype::kInt64, Datatype::kUint64, Datatype::kInt32,
        Datatype::kUint8, Datatype::kInt8, Datatype::kInt16, Datatype::kBool}) {
    for (const std::byte fill : {std::byte{0xff}, std::byte{0x80}, std::byte{0}}) {
      if (fill != std::byte{0}) std::fill(memory.begin(), memory.begin() + 4096, fill);
      const auto count = static_cast<int64_t>(memory.size() / DatatypeBytes(datatype));
      call.outputs = {{.name = "r",
                       .datatype = datatype,
                       .shape = {{1, 1, 1, 1, 1, 1, 1, count}, 8},
                       .byte_count = memory.size(),
                       .data = memory.data()}};
      std::string out;
      uint64_t binary_bytes = 0;
      ASSERT_TRUE(EncodeAnswer(call, decoder_, 1 << 24, &out, &binary_bytes).ok());
      EXPECT_LE(out.size(), AnswerTextMax(call, decoder_, 1 << 24)) << DatatypeName(datatype);
    }
  }
  const size_t most = AnswerTextMax(call, decoder_, 100);
  EXPECT_LT(most, size_t{5} << 20) << "no more than is written before the size is looked at";
}

TEST_F(InferCodecTest, RawBytesAreTheKeysOfOneTable) {
  const std::string bytes(24, 'k');
  ASSERT_TRUE(decoder_.DecodeRaw(AsBytes(bytes), "user", &request_).ok());
  ASSERT_EQ(request_.inputs.size(), 1u);
  EXPECT_EQ(request_.inputs[0].name, "user");
  EXPECT_EQ(request_.inputs[0].datatype, Datatype::kInt64);
  EXPECT_EQ(request_.inputs[0].shape.values().size(), 1u);
  EXPECT_EQ(request_.inputs[0].shape.dims[0], 3);
  EXPECT_EQ(AsText(request_.inputs[0].bytes).data(), bytes.data());
  EXPECT_TRUE(decoder_.wants_binary("anything"));
  decoder_.Reset();
  request_ = InferenceRequest();
  EXPECT_EQ(
      decoder_.DecodeRaw(AsBytes(std::string_view(bytes).substr(1)), "user", &request_),
      absl::InvalidArgumentError("input 'user': 23 bytes are not a whole number of INT64 keys"));
  ASSERT_TRUE(decoder_.DecodeRaw({}, "user", &request_).ok());
  EXPECT_EQ(request_.inputs[0].shape.dims[0], 0);
}

// Catches: a position that counts from the list, and "does not parse" of JSON that does.
TEST_F(InferCodecTest, SaysWhereInTheBodyAnElementIsWrong) {
  const std::string input = R"({"inputs":[{"name":"a","shape":[2],"datatype":"INT64","data":[1,)";
  for (const auto& [element, found] : std::vector<std::pair<std::string, std::string>>{
           {"true", "true or false"}, {"null", "null"}, {"{}", "an object"}}) {
    EXPECT_EQ(Decode(input + " " + element + "]}]}").message(),
              absl::StrCat("input 'a': expected a number at byte ", input.size() + 1,
                           " of the JSON, found ", found));
  }
  EXPECT_EQ(DecodeInput(R"("name":"a","shape":7)").message(),
            "expected an array at byte 31 of the JSON, found a number");
  EXPECT_EQ(Decode(R"({"inputs":[],"id":1})").message(),
            "expected a string at byte 18 of the JSON, found a number");
}

// As Triton does: JSON has no form for them that all agree on.
TEST_F(InferCodecTest, HalvesAndTextDoNotComeAsJson) {
  for (const char* datatype : {"FP16", "BF16", "BYTES"}) {
    const absl::Status status = DecodeInput(
        absl::StrCat(R"("name":"a","shape":[1],"data":[1],"datatype":")", datatype, R"(")"));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("send it as binary data"), absl::string_view::npos) << status;
  }
}

}  // namespace
}  // namespace hps::server
