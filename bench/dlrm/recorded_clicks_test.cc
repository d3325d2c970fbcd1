#include "bench/dlrm/recorded_clicks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "testing/test_directory.h"

namespace hps::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A line whose first and last tables have these fields; those between have "7".
std::string Line(const std::string& first, const std::string& last) {
  std::string line = "1";
  for (int i = 0; i < 13; ++i) line += "\t" + std::to_string(i);
  line += "\t" + first;
  for (int i = 0; i < 24; ++i) line += "\t7";
  return line + "\t" + last + "\n";
}

TEST(RecordedClicksTest, RanksKeysByTheSamplesThatAskForThem) {
  const auto clicks = ParseCriteoClicks(Line("ffffffff", "a") + Line("0000000b", "") +
                                        Line("b", "a") + Line("5", "a"));
  ASSERT_TRUE(clicks.ok()) << clicks.status();
  EXPECT_EQ(clicks->table_count(), 26u);
  EXPECT_EQ(clicks->sample_count(), 4u);
  EXPECT_THAT(clicks->keys[0], ElementsAre(0xb, 0x5, 0xffffffff));
  EXPECT_THAT(clicks->counts[0], ElementsAre(2, 1, 1));
  EXPECT_THAT(clicks->keys[13], ElementsAre(7));
  EXPECT_THAT(clicks->keys[25], ElementsAre(0xa, kNoValue));
  std::vector<uint32_t> of_first, of_last;
  for (size_t sample = 0; sample < 4; ++sample) {
    of_first.push_back(clicks->ranks[sample * 26]);
    of_last.push_back(clicks->ranks[sample * 26 + 25]);
  }
  EXPECT_THAT(of_first, ElementsAre(3, 1, 1, 2));
  EXPECT_THAT(of_last, ElementsAre(1, 2, 1, 1));
}

TEST(RecordedClicksTest, NamesTheLineThatIsNone) {
  for (const std::string& bad : {std::string("1\t2\n"), Line("xyz", "a"), Line("123456789", "a"),
                                 Line("a", "-1"), Line("a", "7 ")}) {
    const auto clicks = ParseCriteoClicks(Line("1", "2") + bad);
    EXPECT_EQ(clicks.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(clicks.status().message()), HasSubstr("line 2")) << bad;
  }
  EXPECT_EQ(ParseCriteoClicks("").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RecordedClicksTest, ReadsThreeFilesInOrder) {
  const TestDirectory directory;
  directory.Write("train.tsv", Line("1", "1"));
  directory.Write("dev.tsv", Line("2", "1"));
  const auto without = ReadCriteoClicks(directory.path());
  EXPECT_EQ(without.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(without.status().message()), HasSubstr("test.tsv"));
  directory.Write("test.tsv", Line("2", "1"));
  const auto clicks = ReadCriteoClicks(directory.path());
  ASSERT_TRUE(clicks.ok()) << clicks.status();
  EXPECT_EQ(clicks->sample_count(), 3u);
  EXPECT_THAT(clicks->keys[0], ElementsAre(2, 1));
  EXPECT_EQ(clicks->ranks[0], 2u) << "the first line of train.tsv";
}

}  // namespace
}  // namespace hps::bench
