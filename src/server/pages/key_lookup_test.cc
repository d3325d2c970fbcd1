#include "server/pages/key_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "server/pages/fuzz_key_question.h"
#include "server/pages/test_pages_world.h"

namespace hps::server {
namespace {

using ::testing::HasSubstr;

class KeyLookupTest : public PagesWorld {
 protected:
  nlohmann::json Answer(Key key) {
    const auto answer = AnswerKeyQuestion(*store_, {.table = "m/t", .key = key});
    EXPECT_TRUE(answer.ok()) << answer.status();
    return nlohmann::json::parse(answer.value_or("{}"));
  }
};

TEST(KeyQuestionTest, ReadsTheWholeRangeOfKeysAndPercentEncoding) {
  const std::vector<std::pair<std::string, Key>> keys = {
      {"0", 0},
      {"-1", -1},
      {"9223372036854775807", std::numeric_limits<Key>::max()},
      {"-9223372036854775808", std::numeric_limits<Key>::min()},
      {"18446744073709551615", -1},
      {"%2d7", -7}};
  for (const auto& [text, key] : keys) {
    const auto question = ParseKeyQuestion("key=" + text + "&table=m%2Ft");
    ASSERT_TRUE(question.ok()) << question.status();
    EXPECT_EQ(question->table, "m/t");
    EXPECT_EQ(question->key, key) << text;
  }
}

TEST(KeyQuestionTest, RefusesWhatIsNoQuestion) {
  for (const char* query :
       {"", "table=m/t", "key=1", "table=m/t&key=", "table=m/t&key=1x", "table=m/t&key=0x1",
        "table=m/t&key=18446744073709551616", "table=m/t&key=1&key=2", "table=m/t&key=1&more=2",
        "table=m&key=1", "table=m/../t&key=1", "table=m%2&key=1", "table=m%2g&key=1", "&", "%",
        "table=m/t&key=+1"}) {
    const auto question = ParseKeyQuestion(query);
    EXPECT_EQ(question.status().code(), absl::StatusCode::kInvalidArgument) << query;
  }
}

TEST(KeyQuestionTest, AnErrorShowsNoControlCharacters) {
  EXPECT_THAT(std::string(ParseKeyQuestion("table=m/t&key=%1b[2J%0a").status().message()),
              HasSubstr("found ' [2J '"));
}

// What libFuzzer begins with: mutants of valid queries.
TEST(KeyQuestionTest, HoldsForMutants) {
  std::mt19937_64 random(20261123);
  const std::string pieces = "table=m/t&key=-19%2f%41%zz+;\xff\x01";
  for (int i = 0; i < 50'000; ++i) {
    std::string query = i % 2 == 0 ? "table=m/t&key=12345" : "key=%2d7&table=m%2Ft";
    for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % query.size();
      if (random() % 3 == 0) {
        query.erase(at, 1 + random() % 3);
      } else {
        query.insert(at, pieces.substr(random() % pieces.size(), 1 + random() % 5));
      }
      if (query.empty()) query = "&";
    }
    FuzzKeyQuestion(std::as_bytes(std::span(query)));
  }
}

TEST_F(KeyLookupTest, AnswersRowAndStatus) {
  const nlohmann::json answer = Answer(-1);
  EXPECT_EQ(answer["table"], "m/t");
  EXPECT_EQ(answer["key"], "-1");
  EXPECT_EQ(answer["status"], "hit_l3");
  EXPECT_EQ(answer["row"], nlohmann::json({0.0, 0.5}));
  EXPECT_EQ(Answer(std::numeric_limits<Key>::min())["key"], "-9223372036854775808");
  EXPECT_EQ(Answer(std::numeric_limits<Key>::min())["row"], nlohmann::json({3.0, 3.5}));
  EXPECT_EQ(Answer(99)["status"], "absent");
}

TEST_F(KeyLookupTest, WritesWhatJsonHasNoNumbersFor) {
  EXPECT_EQ(Answer(7)["row"], nlohmann::json({"NaN", "-Infinity"}));
}

TEST_F(KeyLookupTest, NamesTheNearestTable) {
  const auto answer = AnswerKeyQuestion(*store_, {.table = "m/tt", .key = 1});
  EXPECT_EQ(answer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("m/t"));
  EXPECT_EQ(AnswerKeyQuestion(*store_, {.table = "x/t", .key = 1}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hps::server
