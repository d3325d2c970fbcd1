#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace hps {
namespace {

TEST(JsonWriterTest, NestsAndSeparates) {
  std::string out = "before ";
  JsonWriter json(&out);
  json.BeginObject().Member("a", -1).Name("b").BeginArray();
  json.Value(true).BeginObject().EndObject().BeginArray().EndArray().Value("x").EndArray();
  json.Member("c", std::string("v")).Member("d", std::string_view()).EndObject();
  EXPECT_EQ(out, R"(before {"a":-1,"b":[true,{},[],"x"],"c":"v","d":""})");
}

TEST(JsonWriterTest, IntegersOfEveryWidthKeepTheirValue) {
  std::string out;
  JsonWriter json(&out);
  json.BeginArray().Value(std::numeric_limits<int64_t>::min());
  json.Value(std::numeric_limits<uint64_t>::max()).Value(uint8_t{255}).Value(int8_t{-128});
  json.Value(uint32_t{4'294'967'295}).EndArray();
  EXPECT_EQ(out, "[-9223372036854775808,18446744073709551615,255,-128,4294967295]");
}

// Catches: "-0", which a reader may take for an integer and lose its sign.
TEST(JsonWriterTest, ANegativeZeroIsAFraction) {
  std::string out;
  JsonWriter json(&out);
  json.BeginArray().Value(-0.0F).Value(-0.0).Value(0.0F).EndArray();
  EXPECT_EQ(out, "[-0.0,-0.0,0]");
}

TEST(JsonWriterTest, EscapesStrings) {
  std::string out;
  JsonWriter json(&out);
  json.BeginArray();
  json.Value(std::string_view("a\"b\\c\n\r\t\x01\x7f\xc3\xa9\0", 13));
  json.Value(true);
  json.BeginObject();
  json.Member("k", 1);
  json.Member("l", std::string_view("v"));
  json.EndObject();
  json.EndArray();
  EXPECT_EQ(out,
            "[\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u007f\xc3\xa9\\u0000\",true,{\"k\":1,\"l\":\"v\"}]");
}

}  // namespace
}  // namespace hps
