#include "testing/trials.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace hps {
namespace {

class TrialsTest : public testing::Test {
 protected:
  TrialsTest() {
    if (const char* set = std::getenv(kName)) before_ = set;
    unsetenv(kName);
  }
  ~TrialsTest() override {
    if (before_.has_value())
      setenv(kName, before_->c_str(), 1);
    else
      unsetenv(kName);
  }

  static constexpr const char* kName = "HPS_TEST_TRIALS_PERCENT";
  std::optional<std::string> before_;
};

TEST_F(TrialsTest, AnEighthAtLeastThree) {
  EXPECT_EQ(Trials(400), 50u);
  EXPECT_EQ(Trials(24), 3u);
  EXPECT_EQ(Trials(1), 3u);
}

TEST_F(TrialsTest, AsManyAsTheEnvironmentSays) {
  setenv(kName, "100", 1);
  EXPECT_EQ(Trials(400), 400u);
  setenv(kName, "5000", 1);
  EXPECT_EQ(Trials(400), 20'000u);
}

TEST(TestSeedTest, IsOneForTheProcess) {
  const uint64_t seed = TestSeed();
  EXPECT_EQ(TestSeed(), seed);
  EXPECT_EQ(TestSeed(seed + 1), seed);
}

}  // namespace
}  // namespace hps
