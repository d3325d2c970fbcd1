#include "import/formats/safetensors.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "import/formats/test_files.h"

namespace hps {
namespace {

std::string Object(const std::string& entries) { return "{" + entries + "}"; }

TEST(SafetensorsJsonTest, ReadsTensorsAndSkipsMetadata) {
  const auto tensors = ParseSafetensorsJson(
      Object(R"("__metadata__":{"format":"pt","shape":"x"},)" +
             TensorJson("a", "F32", "2,3", "0,24") + "," + TensorJson("b", "I64", "", "24,32")) +
      "   ");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2U);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].dtype, "F32");
  EXPECT_EQ((*tensors)[0].shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ((*tensors)[0].end, 24U);
  EXPECT_EQ((*tensors)[1].begin, 24U);
  EXPECT_TRUE((*tensors)[1].shape.empty());
  EXPECT_TRUE(ParseSafetensorsJson("{}")->empty());
}

TEST(SafetensorsJsonTest, RefusesEverythingElse) {
  const std::string good = TensorJson("a", "F32", "2", "0,8");
  for (const std::string& json : {
           std::string(),
           std::string("["),
           std::string("[]"),
           std::string("1"),
           std::string("null"),
           std::string("{\"a\""),
           Object("\"a\":1"),
           Object("\"a\":[]"),
           Object("\"a\":{}"),
           Object(good + "," + good),
           Object(good) + "x",
           Object(R"("a":{"dtype":"F32","shape":[2]})"),
           Object(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0]})"),
           Object(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,4,8]})"),
           Object(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,-8]})"),
           Object(R"("a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]})"),
           Object(R"("a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]})"),
           Object(R"("a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]})"),
           Object(R"("a":{"dtype":"F32","shape":{"x":1},"data_offsets":[0,8]})"),
           Object(R"("a":{"dtype":7,"shape":[2],"data_offsets":[0,8]})"),
           Object(R"("a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"),
           Object(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})"),
           Object(R"("a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})"),
           Object(R"("a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]})"),
           Object(R"("__metadata__":{"x":1})"),
           Object(R"("__metadata__":{"x":{}})"),
           Object(R"("__metadata__":[])"),
           Object(R"("a":null)"),
           Object(R"("a":true)"),
       }) {
    const auto tensors = ParseSafetensorsJson(json);
    EXPECT_EQ(tensors.status().code(), absl::StatusCode::kInvalidArgument) << json;
    EXPECT_FALSE(tensors.status().message().empty());
  }
}

// Catches: errors about the metadata that ask for the fields of a tensor.
TEST(SafetensorsJsonTest, SaysWhatTheMetadataMustBe) {
  for (const auto& [entry, found] :
       std::map<std::string, std::string>{{R"("__metadata__":[])", "an array"},
                                          {R"("__metadata__":7)", "a number"},
                                          {R"("__metadata__":{"x":1})", "a number"},
                                          {R"("__metadata__":{"x":{}})", "an object"},
                                          {R"("__metadata__":{"x":["y"]})", "an array"}}) {
    EXPECT_EQ(ParseSafetensorsJson(Object(entry)).status().message(),
              "header entry '__metadata__': expected an object of strings, found " + found);
  }
}

// A recursive parser, or one that stores nested values, would fail here.
TEST(SafetensorsJsonTest, RefusesDeepNestingAtOnce) {
  std::string deep;
  deep.resize(10'000'000, '[');
  EXPECT_FALSE(ParseSafetensorsJson("{\"a\":" + deep).ok());
  EXPECT_FALSE(ParseSafetensorsJson(deep).ok());
}

TEST(SafetensorsJsonTest, NoMutantIsReadOutOfBounds) {
  const uint64_t seed = 20260102;
  std::mt19937_64 random(seed);
  const std::string good =
      Object(R"("__metadata__":{"format":"pt"},)" + TensorJson("keys", "I64", "3", "0,24") + "," +
             TensorJson("rows", "F32", "3,2", "24,48"));
  const std::string alphabet = "{}[]\",: 0123456789-.eE\\untrIF";
  size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string json = good;
    for (uint64_t change = random() % 4; change > 0 && !json.empty(); --change) {
      const size_t at = random() % json.size();
      switch (random() % 3) {
        case 0:
          json[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          json.erase(at, 1 + random() % 8);
          break;
        default:
          json.insert(at, 1, alphabet[random() % alphabet.size()]);
      }
    }
    accepted += ParseSafetensorsJson(json).ok() ? 1 : 0;
  }
  EXPECT_GT(accepted, 0U);
  EXPECT_LT(accepted, 20'000U);
}

class SafetensorsFileTest : public testing::Test {
 protected:
  absl::StatusOr<SafetensorsHeader> ReadHeader(const std::string& bytes) {
    auto file = File::OpenForReading(directory_.Write("x.safetensors", bytes));
    HPS_CHECK(file.ok());
    return ReadSafetensorsHeader(*file);
  }
  void ExpectError(const std::string& bytes, const std::string& text) {
    const absl::Status status = ReadHeader(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(directory_.Path("x.safetensors")), std::string::npos) << status;
    EXPECT_NE(status.message().find(text), std::string::npos) << status;
  }

  const TestDirectory directory_;
};

TEST_F(SafetensorsFileTest, FindsTensors) {
  const std::string json =
      Object(TensorJson("b", "F32", "2", "8,16") + "," + TensorJson("a", "I64", "1", "0,8") + "," +
             TensorJson("none", "F32", "0,4", "16,16"));
  const auto header = ReadHeader(SafetensorsBytes(json, std::string(16, 'x')));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->data_offset, 8 + json.size());
  ASSERT_NE(header->Find("a"), nullptr);
  EXPECT_EQ(header->Find("a")->end, 8U);
  EXPECT_EQ(header->Find("c"), nullptr);
}

TEST_F(SafetensorsFileTest, RefusesHostileHeaderLengths) {
  ExpectError("", "at least 8 bytes, found 0");
  ExpectError("1234567", "found 7");
  ExpectError(BytesOf<uint64_t>({uint64_t{1} << 63}) + "{}",
              "found a length of 9223372036854775808");
  ExpectError(BytesOf<uint64_t>({~uint64_t{0}}) + "{}", "found a length of 18446744073709551615");
  ExpectError(BytesOf<uint64_t>({3}) + "{}", "at most 2 bytes, found a length of 3");
  // A sparse file that has room for a header above the limit: refused before the allocation.
  directory_.Write("x.safetensors", BytesOf<uint64_t>({100'000'001}));
  std::filesystem::resize_file(directory_.Path("x.safetensors"), 200'000'000);
  const auto file = File::OpenForReading(directory_.Path("x.safetensors"));
  EXPECT_NE(ReadSafetensorsHeader(*file).status().message().find("at most 100000000 bytes"),
            std::string::npos);
}

TEST_F(SafetensorsFileTest, RefusesOffsetsThatAreNoLayout) {
  const std::string data(16, 'x');
  const auto bytes = [&](const std::string& entries) {
    return SafetensorsBytes(Object(entries), data);
  };
  ExpectError(
      bytes(TensorJson("a", "F32", "4", "0,16") + "," + TensorJson("b", "F32", "2", "8,16")),
      "overlap");
  ExpectError(bytes(TensorJson("a", "F32", "2", "8,16")), "a hole");
  ExpectError(bytes(TensorJson("a", "F32", "2", "0,8")), "expected 8 bytes of tensors");
  ExpectError(bytes(TensorJson("a", "F32", "5", "0,20")), "inside the 16 bytes");
  ExpectError(bytes(TensorJson("a", "F32", "2", "16,8")), "[16, 8]");
  ExpectError(bytes(TensorJson("a", "F32", "3", "0,16")), "[3] elements of 'F32' = 12 bytes");
  ExpectError(bytes(TensorJson("a", "F32", "4611686018427387904,4", "0,16")), "more than 2^64");
  ExpectError(bytes(TensorJson("a", "F32", "1", "18446744073709551612,18446744073709551615")),
              "inside the 16 bytes");
}

}  // namespace
}  // namespace hps
