#include "server/grpc_codec/proto_infer_response.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "server/grpc_codec/wire_format.h"

namespace hps::server {
namespace {

class PlainCall final : public InferenceCall {
 public:
  uint64_t AnswerBytes() const override { return TensorBytes(); }
  void OnDone(const absl::Status&) override {}
  void AddOutput(std::string_view name, Datatype datatype, const std::vector<int64_t>& dims) {
    OutputTensor& output = outputs.emplace_back();
    output.name = name;
    output.datatype = datatype;
    output.byte_count = DatatypeBytes(datatype);
    for (const int64_t dim : dims) {
      output.shape.dims[output.shape.dim_count++] = dim;
      output.byte_count *= static_cast<size_t>(dim);
    }
  }
};

// Plans, places, fills every output's data with its index + 1, and puts the pieces together.
std::string Encode(PlainCall& call, const InferResponseCodec::Options& options) {
  InferResponseCodec codec;
  const size_t bytes = codec.Plan(call, options);
  std::vector<std::byte> memory(bytes + 64, std::byte{0xee});
  const auto misaligned = std::bit_cast<uintptr_t>(memory.data()) % 64;
  codec.Place(memory.data() + (64 - misaligned) % 64, &call);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uintptr_t>(call.outputs[i].data) % 64, 0U);
    std::memset(call.outputs[i].data, static_cast<int>(i) + 1, call.outputs[i].byte_count);
  }
  std::string message;
  for (const std::span<std::byte> piece : codec.pieces()) message += AsText(piece);
  EXPECT_LE(message.size(), bytes);
  return message;
}

// The fields of a message: number and bytes (or the varint's digits).
std::vector<std::pair<uint32_t, std::string>> Fields(std::string_view message) {
  std::vector<std::pair<uint32_t, std::string>> fields;
  WireReader reader(AsBytes(message));
  uint32_t field = 0;
  WireType type{};
  while (reader.Next(&field, &type)) {
    uint64_t number = 0;
    std::string_view text;
    if (type == WireType::kVarint) {
      EXPECT_TRUE(reader.ReadVarint(&number));
      fields.emplace_back(field, std::to_string(number));
    } else {
      EXPECT_TRUE(reader.ReadText(&text));
      fields.emplace_back(field, std::string(text));
    }
  }
  EXPECT_FALSE(reader.malformed());
  return fields;
}

TEST(InferResponseCodecTest, WritesNamesShapesAndData) {
  PlainCall call;
  call.request.model = "m";
  call.request.id = "42";
  call.model_version = "7";
  call.AddOutput("t", Datatype::kFp32, {3, 32});
  const auto fields = Fields(Encode(call, {}));
  ASSERT_EQ(fields.size(), 5U);
  EXPECT_EQ(fields[0], std::make_pair(1U, std::string("m")));
  EXPECT_EQ(fields[1], std::make_pair(2U, std::string("7")));
  EXPECT_EQ(fields[2], std::make_pair(3U, std::string("42")));
  EXPECT_EQ(fields[3].first, 5U);
  const auto output = Fields(fields[3].second);
  ASSERT_EQ(output.size(), 3U);
  EXPECT_EQ(output[0].second, "t");
  EXPECT_EQ(output[1].second, "FP32");
  EXPECT_EQ(output[2].second, std::string("\x03\x20"));
  EXPECT_EQ(fields[4], std::make_pair(6U, std::string(384, '\x01')));
}

// Every length of data, so that separators meet every alignment and every varint's length.
TEST(InferResponseCodecTest, AllSizesOfSeveralOutputs) {
  for (const int64_t size : {0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 4095, 4096, 4097, 70'000}) {
    PlainCall call;
    call.request.model = "model";
    call.model_version = "1";
    call.AddOutput("a", Datatype::kUint8, {size});
    call.AddOutput("b", Datatype::kUint8, {size + 1});
    call.AddOutput("c", Datatype::kUint8, {0});
    call.AddOutput("d", Datatype::kUint8, {7, 5});
    const auto fields = Fields(Encode(call, {}));
    ASSERT_EQ(fields.size(), 10U);
    const auto count = static_cast<size_t>(size);
    EXPECT_EQ(fields[6].second, std::string(count, '\x01'));
    EXPECT_EQ(fields[7].second, std::string(count + 1, '\x02'));
    EXPECT_EQ(fields[8].second, "");
    EXPECT_EQ(fields[9].second, std::string(35, '\x04'));
  }
}

TEST(InferResponseCodecTest, InAStreamTheAnswerIsWrapped) {
  PlainCall call;
  call.request.model = "m";
  call.model_version = "1";
  call.AddOutput("t", Datatype::kFp32, {1, 1});
  const std::string alone = Encode(call, {});
  const auto fields = Fields(Encode(call, {.in_stream = true}));
  ASSERT_EQ(fields.size(), 1U);
  EXPECT_EQ(fields[0], std::make_pair(2U, alone));
  const auto marked =
      Fields(Fields(Encode(call, {.in_stream = true, .final_mark = true}))[0].second);
  ASSERT_EQ(marked.size(), 5U);
  EXPECT_EQ(marked[2].first, 4U);
  const auto parameter = Fields(marked[2].second);
  ASSERT_EQ(parameter.size(), 2U);
  EXPECT_EQ(parameter[0].second, "triton_final_response");
  EXPECT_EQ(Fields(parameter[1].second)[0], std::make_pair(1U, std::string("1")));
}

TEST(InferResponseCodecTest, WithoutOutputsThereIsOnlyAHead) {
  PlainCall call;
  call.request.model = "m";
  call.model_version = "1";
  EXPECT_EQ(Fields(Encode(call, {})).size(), 2U);
}

TEST(InferResponseCodecTest, StreamErrorNamesTheRequest) {
  const auto fields = Fields(StreamErrorMessage("why", "m", "9"));
  ASSERT_EQ(fields.size(), 2U);
  EXPECT_EQ(fields[0], std::make_pair(1U, std::string("why")));
  EXPECT_EQ(Fields(fields[1].second)[1], std::make_pair(3U, std::string("9")));
}

}  // namespace
}  // namespace hps::server
