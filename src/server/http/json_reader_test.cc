#include "server/http/json_reader.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace hps::server {
namespace {

absl::Status Skip(std::string text) {
  JsonReader json{std::span<char>(text)};
  json.SkipValue();
  return json.Finish();
}

std::string String(std::string text) {
  JsonReader json{std::span<char>(text)};
  std::string_view value;
  return json.ReadString(&value) && json.Finish().ok() ? std::string(value) : "(refused)";
}

TEST(JsonReaderTest, PassesOverEveryKindOfValue) {
  for (const char* text :
       {"{}", "[]", "0", "-0", "1.5e-3", "\"\"", "true", "false", "null", " [1, 2 , [3]] ",
        R"({"a":{"b":[{},[],"x"]},"c":null})", "NaN", "Infinity", "-Infinity", "[[[[]]]]",
        R"("\"\\\/\b\f\n\r\t\u00e9")", "{\"a\":1,\"a\":2}"}) {
    EXPECT_TRUE(Skip(text).ok()) << text << ": " << Skip(text);
  }
}

TEST(JsonReaderTest, RefusesWhatIsNotJson) {
  for (const char* text :
       {"",        "{",        "}",     "[",          "]",         "[1,]",      "[,1]",  "[1 2]",
        "{\"a\"}", "{\"a\":}", "{a:1}", "{\"a\":1,}", "{,}",       "01",        "1.",    ".5",
        "1e",      "-",        "+1",    "--1",        "tru",       "nul",       "\"",    "\"\\",
        "\"\n\"",  "[1]]",     "1 1",   "-NaN",       "{\"a\" 1}", "[\"a\":1]", "{1:1}", "\x01"}) {
    EXPECT_EQ(Skip(text).code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(Skip(std::string("[\0]", 3)).code(), absl::StatusCode::kInvalidArgument);
}

TEST(JsonReaderTest, BoundsTheDepth) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + "1" + std::string(depth, ']');
  };
  EXPECT_TRUE(Skip(nested(JsonReader::kDepthMax)).ok());
  EXPECT_EQ(Skip(nested(JsonReader::kDepthMax + 1)).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Skip(std::string(1 << 20, '[')).code(), absl::StatusCode::kOutOfRange);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(Skip(objects).code(), absl::StatusCode::kOutOfRange);
}

TEST(JsonReaderTest, UnescapesStrings) {
  EXPECT_EQ(String(R"("a\"\\\/\b\f\n\r\tz")"), "a\"\\/\b\f\n\r\tz");
  EXPECT_EQ(String(R"("\u0041\u00e9\u20ac\ud83d\ude00")"), "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  for (const char* text :
       {R"("\x")", R"("\u12")", R"("\u12g4")", R"("\ud800")", R"("\ud800\u0041")", R"("\udc00")",
        "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\""}) {
    EXPECT_EQ(String(text), "(refused)") << text;
  }
}

TEST(JsonReaderTest, ReadsIntegersOf64BitsExactly) {
  std::string text = "[-9223372036854775808,9223372036854775807,18446744073709551615]";
  JsonReader json{std::span<char>(text)};
  int64_t low = 0;
  int64_t high = 0;
  uint64_t largest = 0;
  json.BeginArray();
  ASSERT_TRUE(json.NextElement() && json.ReadInt64(&low));
  ASSERT_TRUE(json.NextElement() && json.ReadInt64(&high));
  ASSERT_TRUE(json.NextElement() && json.ReadUint64(&largest));
  EXPECT_FALSE(json.NextElement());
  EXPECT_TRUE(json.Finish().ok());
  EXPECT_EQ(low, std::numeric_limits<int64_t>::min());
  EXPECT_EQ(high, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(largest, std::numeric_limits<uint64_t>::max());
}

TEST(JsonReaderTest, RefusesIntegersThatAreNone) {
  for (const char* text : {"1.0", "1e3", "9223372036854775808", "-9223372036854775809", "NaN",
                           "\"1\"", "null", "true"}) {
    std::string copy = text;
    JsonReader json{std::span<char>(copy)};
    int64_t value = 0;
    EXPECT_FALSE(json.ReadInt64(&value)) << text;
    EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument);
  }
  std::string negative = "-1";
  JsonReader json{std::span<char>(negative)};
  uint64_t value = 0;
  EXPECT_FALSE(json.ReadUint64(&value));
}

TEST(JsonReaderTest, SaysWhatWasExpectedWhere) {
  EXPECT_EQ(Skip("[1 2]").message(), "the JSON does not parse: expected ',' or ']' at byte 3");
  EXPECT_EQ(Skip("[1").message(),
            "the JSON does not parse: expected ',' or ']' at byte 2, where it ends");
  std::string text = R"([ {"a": 1.5} ])";
  JsonReader json(std::span<char>(text).subspan(8), text.data());
  int64_t value = 0;
  EXPECT_FALSE(json.ReadInt64(&value));
  EXPECT_EQ(json.status().message(),
            "expected an integer of 64 bits at byte 8 of the JSON, found a number");
  std::string_view key;
  std::string no_key = "{1:2}";
  JsonReader object{std::span<char>(no_key)};
  object.BeginObject();
  EXPECT_FALSE(object.NextMember(&key));
  EXPECT_EQ(object.status().message(), "the JSON does not parse: expected a string at byte 1");
}

TEST(JsonReaderTest, AFailedReaderStaysFailed) {
  std::string text = "[1,x,2]";
  JsonReader json{std::span<char>(text)};
  int64_t value = 0;
  json.BeginArray();
  EXPECT_TRUE(json.NextElement() && json.ReadInt64(&value));
  EXPECT_TRUE(json.NextElement());
  EXPECT_FALSE(json.ReadInt64(&value));
  EXPECT_FALSE(json.NextElement());
  EXPECT_FALSE(json.SkipValue());
  EXPECT_EQ(json.Peek(), JsonKind::kEnd);
  EXPECT_FALSE(json.Finish().ok());
}

}  // namespace
}  // namespace hps::server
