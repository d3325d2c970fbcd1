#include "tier/admission.h"

#include <gtest/gtest.h>

#include <vector>

namespace hps {
namespace {

constexpr size_t kWords = 1000;
constexpr uint64_t kKeysPerAging = 2000;

class FrequencySketchTest : public ::testing::Test {
 protected:
  // How many of the keys from `first` on are frequent, each counted once.
  size_t FrequentOf(Key first, size_t count) {
    size_t frequent = 0;
    for (size_t i = 0; i < count; ++i)
      frequent += sketch_.IsFrequent(first + static_cast<Key>(i)) ? 1 : 0;
    return frequent;
  }

  std::vector<FrequencyWord> words_ = std::vector<FrequencyWord>(kWords);
  FrequencySketch sketch_{words_, kKeysPerAging};
};

TEST_F(FrequencySketchTest, TheSecondTimeIsFrequent) {
  for (const Key key : {Key{0}, Key{-1}, Key{1}, INT64_MIN, INT64_MAX}) {
    EXPECT_FALSE(sketch_.IsFrequent(key)) << key;
    EXPECT_TRUE(sketch_.IsFrequent(key)) << key;
  }
}

TEST_F(FrequencySketchTest, TwoMissesOfOneCallAreAsGoodAsTwoCalls) {
  EXPECT_TRUE(sketch_.IsFrequent(1, 2));
  EXPECT_TRUE(sketch_.IsFrequent(2, 255));
  EXPECT_FALSE(sketch_.IsFrequent(3, 1));
  EXPECT_TRUE(sketch_.IsFrequent(3, 1));
  EXPECT_EQ(sketch_.counted(), 4u) << "ages by keys, not by misses";
}

// Each of them alone would let a cold row push a hot one out.
TEST_F(FrequencySketchTest, FewOfManyColdKeysAreTakenForFrequentOnes) {
  EXPECT_LT(FrequentOf(1'000'000, 100'000), 1500u);
}

TEST_F(FrequencySketchTest, RemembersAKeyForAWhileAndThenForgetsIt) {
  FrequentOf(0, 200);
  FrequentOf(1'000'000, 300);
  EXPECT_GT(FrequentOf(0, 200), 100u) << "most have not been aged yet";
  for (int aging = 0; aging < 3; ++aging) {  // long enough for counters of three
    for (uint64_t i = 0; i < kKeysPerAging; ++i) sketch_.IsFrequent(7);
  }
  EXPECT_LT(FrequentOf(0, 200), 10u);
}

TEST(FrequencyWordTest, CountsUpToFourAndIsHalved) {
  const uint64_t hash = FrequencyHash(42);
  FrequencyWord word = 0;
  for (const uint32_t count : {1, 2, 3, 4, 4}) {
    const FrequencyUpdate update = CountFrequency(word, hash);
    EXPECT_EQ(update.count, count);
    word = update.word;
  }
  word = AgedFrequencies(word);  // from three to one
  EXPECT_EQ(CountFrequency(word, hash).count, 2u);
  EXPECT_EQ(AgedFrequencies(AgedFrequencies(~FrequencyWord{0})), 0u);
}

TEST(FrequencyWordTest, EveryWordIsUsed) {
  std::vector<size_t> keys_of(8);
  for (Key key = 0; key < 8000; ++key) ++keys_of[FrequencyWordOf(FrequencyHash(key), 8)];
  for (const size_t keys : keys_of) EXPECT_NEAR(static_cast<double>(keys), 1000, 200);
}

}  // namespace
}  // namespace hps
