#include "server/http/tensor_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/json_writer.h"

namespace hps::server {
namespace {

template <typename T>
absl::Status Parse(std::string text, Datatype datatype, std::vector<T>* values) {
  return ParseTensorText(std::span<char>(text), text.data(), datatype,
                         std::as_writable_bytes(std::span<T>(*values)));
}

template <typename T>
std::string Write(const std::vector<T>& values, Datatype datatype) {
  std::string out;
  JsonWriter json(&out, NonFinite::kText);
  WriteTensorText(AsBytes(std::span<const T>(values)), datatype, json);
  return out;
}

TEST(TensorTextTest, NestingDoesNotMatter) {
  for (const char* text :
       {"[1,-2,3,4]", "[[1,-2],[3,4]]", "[[[1],[-2]],[[3],[4]]]", "[1,[-2,3],4]"}) {
    std::vector<int64_t> values(4);
    ASSERT_TRUE(Parse(text, Datatype::kInt64, &values).ok()) << text;
    EXPECT_EQ(values, (std::vector<int64_t>{1, -2, 3, 4}));
  }
  std::vector<int64_t> none;
  EXPECT_TRUE(Parse("[]", Datatype::kInt64, &none).ok());
  EXPECT_TRUE(Parse("[[],[]]", Datatype::kInt64, &none).ok());
}

TEST(TensorTextTest, CountsTheElements) {
  std::vector<int64_t> values(2);
  EXPECT_EQ(Parse("[1]", Datatype::kInt64, &values).message(),
            "its data has 1 elements, its shape 2");
  EXPECT_EQ(Parse("[1,2,3]", Datatype::kInt64, &values).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Parse("{\"a\":1}", Datatype::kInt64, &values).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Parse("7", Datatype::kInt64, &values).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Parse(std::string(40, '['), Datatype::kInt64, &values).code(),
            absl::StatusCode::kOutOfRange);
}

TEST(TensorTextTest, IntegersMustFitTheirType) {
  std::vector<int8_t> small(1);
  EXPECT_TRUE(Parse("[-128]", Datatype::kInt8, &small).ok());
  EXPECT_FALSE(Parse("[128]", Datatype::kInt8, &small).ok());
  std::vector<uint64_t> large(1);
  EXPECT_TRUE(Parse("[18446744073709551615]", Datatype::kUint64, &large).ok());
  EXPECT_EQ(large[0], std::numeric_limits<uint64_t>::max());
  EXPECT_FALSE(Parse("[-1]", Datatype::kUint64, &large).ok());
  EXPECT_EQ(Parse("[-1]", Datatype::kUint64, &large).message(),
            "expected an integer, found '-1', which is out of the range of UINT64");
  std::vector<uint8_t> booleans(2);
  EXPECT_TRUE(Parse("[true,false]", Datatype::kBool, &booleans).ok());
  EXPECT_EQ(booleans, (std::vector<uint8_t>{1, 0}));
  EXPECT_FALSE(Parse("[1,0]", Datatype::kBool, &booleans).ok());
}

TEST(TensorTextTest, KeysAreTakenBitForBit) {
  std::vector<int64_t> keys(4);
  ASSERT_TRUE(Parse("[-9223372036854775808,9223372036854775807,9223372036854775808,"
                    "18446744073709551615]",
                    Datatype::kInt64, &keys)
                  .ok());
  EXPECT_EQ(keys, (std::vector<int64_t>{std::numeric_limits<int64_t>::min(),
                                        std::numeric_limits<int64_t>::max(),
                                        std::numeric_limits<int64_t>::min(), -1}));
  std::vector<int64_t> one(1);
  for (const char* wrong : {"[18446744073709551616]", "[-9223372036854775809]", "[-0x1]",
                            "[99999999999999999999999]"}) {
    EXPECT_EQ(Parse(wrong, Datatype::kInt64, &one).code(), absl::StatusCode::kInvalidArgument)
        << wrong;
  }
  std::vector<int32_t> small(1);
  EXPECT_FALSE(Parse("[18446744073709551615]", Datatype::kInt32, &small).ok());
  EXPECT_FALSE(Parse("[4294967295]", Datatype::kInt32, &small).ok());
}

// Catches: clients that write every number as a double, and get no answer, or that of another key.
TEST(TensorTextTest, IntegersMayHaveAFractionOfZerosOrAnExponent) {
  const std::vector<std::pair<std::string, int64_t>> cases = {
      {"7.0", 7},
      {"7e0", 7},
      {"-7.000000000000000000000000000000", -7},
      {"-0.0", 0},
      {"0e99999999999", 0},
      {"1.5e1", 15},
      {"1200e-2", 12},
      {"1E+3", 1000},
      {"9.007199254740992e15", int64_t{1} << 53},
      {"9007199254740992.0", int64_t{1} << 53},
      {"-9007199254740992.0", -(int64_t{1} << 53)}};
  for (const auto& [text, expected] : cases) {
    std::vector<int64_t> value(1);
    const absl::Status parsed = Parse("[" + text + "]", Datatype::kInt64, &value);
    ASSERT_TRUE(parsed.ok()) << parsed;
    EXPECT_EQ(value[0], expected) << text;
    if (expected < 0) continue;
    std::vector<uint64_t> bits(1);
    ASSERT_TRUE(Parse("[" + text + "]", Datatype::kUint64, &bits).ok()) << text;
    EXPECT_EQ(bits[0], static_cast<uint64_t>(expected)) << text;
  }
  std::vector<int32_t> small(1);
  ASSERT_TRUE(Parse("[-5.0]", Datatype::kInt32, &small).ok());
  EXPECT_EQ(small[0], -5);
  EXPECT_EQ(Parse("[3e9]", Datatype::kInt32, &small).message(),
            "expected an integer, found '3e9', which is out of the range of INT32");
}

TEST(TensorTextTest, IntegersThatMayHaveBeenRoundedAreRefused) {
  for (const char* text : {"9007199254740993.0", "8199580975773294000.0", "1e19", "1e400", "-1e16",
                           "8.1995809757732938e18", "7e99999999999"}) {
    for (const Datatype datatype : {Datatype::kInt64, Datatype::kUint64}) {
      std::vector<int64_t> value(1);
      const absl::Status parsed = Parse(std::string("[") + text + "]", datatype, &value);
      EXPECT_EQ(parsed.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(parsed.message(),
                std::string("expected an integer, found '") + text +
                    "'; beyond 2^53 it may have been rounded: send it without a fraction and an "
                    "exponent, or as a decimal string");
    }
  }
  for (const char* text :
       {"7.5", "1e-1", "0.1", "NaN", "Infinity", "-Infinity", "7e-99999999999"}) {
    std::vector<int64_t> value(1);
    EXPECT_EQ(Parse(std::string("[") + text + "]", Datatype::kInt64, &value).message(),
              std::string("expected an integer, found '") + text + "'");
  }
}

TEST(TensorTextTest, IntegersOf64BitsMayBeDecimalStrings) {
  std::vector<int64_t> keys(4);
  ASSERT_TRUE(Parse(R"(["8199580975773293796",7,["-9223372036854775808"],"18446744073709551615"])",
                    Datatype::kInt64, &keys)
                  .ok());
  EXPECT_EQ(keys, (std::vector<int64_t>{8199580975773293796, 7, std::numeric_limits<int64_t>::min(),
                                        -1}));
  std::vector<uint64_t> bits(2);
  ASSERT_TRUE(Parse(R"(["18446744073709551615","\u0037"])", Datatype::kUint64, &bits).ok());
  EXPECT_EQ(bits, (std::vector<uint64_t>{std::numeric_limits<uint64_t>::max(), 7}));
  std::vector<int64_t> one(1);
  for (const char* text : {"", " 7", "7 ", "+7", "7.0", "7e0", "0x7", "-", "abc", "7n"}) {
    EXPECT_EQ(Parse(std::string("[\"") + text + "\"]", Datatype::kInt64, &one).message(),
              std::string("expected an integer, found '") + text + "'");
  }
  EXPECT_EQ(
      Parse(R"(["18446744073709551616"])", Datatype::kInt64, &one).message(),
      "expected an integer, found '18446744073709551616', which is out of the range of INT64");
  EXPECT_EQ(Parse(R"(["-1"])", Datatype::kUint64, &one).message(),
            "expected an integer, found '-1', which is out of the range of UINT64");
  EXPECT_EQ(Parse("[\"" + std::string(100, 'x') + "\"]", Datatype::kInt64, &one).message(),
            "expected an integer, found '" + std::string(40, 'x') + "...'");
  std::vector<int32_t> small(1);
  EXPECT_FALSE(Parse(R"(["7"])", Datatype::kInt32, &small).ok()) << "a double has all of them";
}

TEST(TensorTextTest, FloatsTakeEveryValue) {
  std::vector<float> values(6);
  ASSERT_TRUE(Parse("[1.5,-2e3,NaN,Infinity,-Infinity,1e-60]", Datatype::kFp32, &values).ok());
  EXPECT_EQ(values[0], 1.5f);
  EXPECT_EQ(values[1], -2000.0f);
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_EQ(values[3], std::numeric_limits<float>::infinity());
  EXPECT_EQ(values[4], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(values[5], 0.0f);
  std::vector<float> one(1);
  EXPECT_FALSE(Parse("[1e60]", Datatype::kFp32, &one).ok());
  ASSERT_TRUE(Parse(R"(["Infinity"])", Datatype::kFp32, &one).ok());
  EXPECT_EQ(one[0], std::numeric_limits<float>::infinity());
  EXPECT_FALSE(Parse("[null]", Datatype::kFp32, &one).ok()) << "it may have been any of them";
  for (const char* text : {"1.5", "nan", "inf", "+Infinity", "", "N", "many"}) {
    EXPECT_EQ(Parse(std::string("[\"") + text + "\"]", Datatype::kFp32, &one).message(),
              std::string("expected a number, \"NaN\", \"Infinity\" or \"-Infinity\", found \"") +
                  text + "\"");
  }
}

TEST(TensorTextTest, WritesWhatReadsBack) {
  const std::vector<float> values = {0.1f,
                                     -1.5f,
                                     3e38f,
                                     1e-40f,
                                     16777217.0f,
                                     std::numeric_limits<float>::quiet_NaN(),
                                     -std::numeric_limits<float>::infinity()};
  const std::string text = Write(values, Datatype::kFp32);
  EXPECT_TRUE(text.starts_with("[0.1,-1.5,3e+38,")) << text;
  EXPECT_TRUE(text.ends_with(R"(,"NaN","-Infinity"])")) << text;
  std::vector<float> again(values.size());
  ASSERT_TRUE(Parse(text, Datatype::kFp32, &again).ok());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(values[i] == again[i] || std::isnan(values[i])) << i;
  }
  EXPECT_EQ(Write<uint8_t>({0, 255}, Datatype::kUint8), "[0,255]");
  EXPECT_EQ(Write<int64_t>({std::numeric_limits<int64_t>::min()}, Datatype::kInt64),
            "[-9223372036854775808]");
  EXPECT_EQ(Write<uint8_t>({1, 0}, Datatype::kBool), "[true,false]");
  EXPECT_EQ(Write<double>({}, Datatype::kFp64), "[]");
}

TEST(TensorTextTest, SomeTypesHaveNoText) {
  EXPECT_FALSE(HasTextForm(Datatype::kFp16));
  EXPECT_FALSE(HasTextForm(Datatype::kBf16));
  EXPECT_FALSE(HasTextForm(Datatype::kBytes));
  EXPECT_TRUE(HasTextForm(Datatype::kUint16));
}

}  // namespace
}  // namespace hps::server
