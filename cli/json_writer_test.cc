#include "base/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace hps::cli {
namespace {

// What `write` puts into a JsonWriter.
template <typename Write>
std::string Written(Write write, NonFinite non_finite = NonFinite::kNull) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::tmpfile());
  JsonWriter writer(file.get(), non_finite);
  write(writer);
  EXPECT_TRUE(writer.Flush());
  std::string text(static_cast<size_t>(std::ftell(file.get())), '\0');
  std::rewind(file.get());
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file.get()), text.size());
  return text;
}

TEST(JsonWriterTest, NestsAndSeparates) {
  EXPECT_EQ(Written([](JsonWriter& json) {
              json.BeginObject().Member("a", int64_t{-1}).Name("b").BeginArray();
              json.Value(true).BeginObject().EndObject().BeginArray().EndArray().Value("x");
              json.EndArray().Member("c", uint64_t{18446744073709551615U}).EndObject();
            }),
            R"({"a":-1,"b":[true,{},[],"x"],"c":18446744073709551615})");
}

TEST(JsonWriterTest, WritesADocumentAsItsValues) {
  const nlohmann::ordered_json document = {
      {"b", {1, -2, 18446744073709551615U, true}}, {"a", 100.0}, {"c", {{"text", "\x7f\xff"}}},
      {"d", nlohmann::ordered_json::array()},      {"e", 0.25},  {"f", std::nan("")}};
  EXPECT_EQ(Written([&](JsonWriter& json) {
              json.BeginArray().Value(document).BeginObject().Member("x", document["c"]);
              json.EndObject().EndArray();
            }),
            "[{\"b\":[1,-2,18446744073709551615,true],\"a\":100,"
            "\"c\":{\"text\":\"\\u007f\xef\xbf\xbd\"},\"d\":[],\"e\":0.25,\"f\":null},"
            "{\"x\":{\"text\":\"\\u007f\xef\xbf\xbd\"}}]");
}

// JSON has no such numbers: JavaScript and Go refuse a text with the bare words.
TEST(JsonWriterTest, WritesWhatIsNoNumberAsNullOrText) {
  const auto write = [](JsonWriter& json) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    json.BeginArray().Value(std::numeric_limits<float>::quiet_NaN()).Value(kInfinity);
    json.Value(-kInfinity).EndArray();
  };
  EXPECT_EQ(Written(write), "[null,null,null]");
  EXPECT_EQ(Written(write, NonFinite::kText), R"(["NaN","Infinity","-Infinity"])");
}

// Catches: "-0", which a reader may take for an integer and lose its sign.
TEST(JsonWriterTest, ANegativeZeroIsAFraction) {
  EXPECT_EQ(Written([](JsonWriter& json) {
              json.BeginArray().Value(-0.0F).Value(-0.0).Value(0.0F).EndArray();
            }),
            "[-0.0,-0.0,0]");
}

TEST(JsonWriterTest, FloatsRoundTrip) {
  std::mt19937 random(7);
  for (int i = 0; i < 100'000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random());
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    if (!(value - value == 0)) continue;  // NaN and infinities are written otherwise
    if (i < 1'000) {
      const std::string text = Written([&](JsonWriter& json) { json.Value(value); });
      ASSERT_EQ(std::strtof(text.c_str(), nullptr), value) << text;
      ASSERT_EQ(nlohmann::json::parse(text).get<float>(), value) << text;
    }
  }
}

// Catches: the text of a lookup with six digits, as streams print by default.
TEST(FormatFloatTest, ReadsBackAsTheSameValue) {
  std::mt19937 random(7);
  for (int i = 0; i < 100'000; ++i) {
    const uint32_t bits = static_cast<uint32_t>(random());
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    if (!(value - value == 0)) continue;  // NaN and infinities
    ASSERT_EQ(std::strtof(FormatFloat(value).c_str(), nullptr), value);
  }
  EXPECT_EQ(FormatFloat(0.1F), "0.1");
  EXPECT_EQ(FormatFloat(-std::numeric_limits<float>::infinity()), "-Infinity");
  EXPECT_EQ(FormatFloat(std::numeric_limits<float>::quiet_NaN()), "NaN");
}

TEST(JsonWriterTest, EveryStringIsValidAndKeepsItsText) {
  for (const std::string text : {"", "plain", "\"quoted\\\"", "tab\tline\n\x01\x7f", "käse",
                                 "\xf0\x9f\x98\x80", "\xed\x9f\xbf\xee\x80\x80"}) {
    const std::string written = Written([&](JsonWriter& json) { json.Value(text.c_str()); });
    EXPECT_EQ(nlohmann::json::parse(written).get<std::string>(), text) << written;
  }
}

TEST(JsonWriterTest, WhatIsNoUtf8IsReplaced) {
  for (const std::string text : {"\x80", "\xff", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80",
                                 "\xf4\x90\x80\x80", "\xc3", "a\xe2\x82", "\xf8\x88\x80\x80\x80"}) {
    const std::string written = Written([&](JsonWriter& json) { json.Value(text.c_str()); });
    const std::string read = nlohmann::json::parse(written).get<std::string>();
    EXPECT_NE(read.find("\xef\xbf\xbd"), std::string::npos) << written;
  }
}

TEST(JsonWriterTest, AFullStreamIsSeen) {
  std::FILE* full = std::fopen("/dev/full", "w");
  ASSERT_NE(full, nullptr);
  JsonWriter writer(full);
  writer.Value("text");
  EXPECT_FALSE(writer.Flush());
  std::fclose(full);
}

}  // namespace
}  // namespace hps::cli
