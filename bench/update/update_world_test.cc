#include "bench/update/update_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "bench/measure.h"
#include "bench/scenario.h"
#include "bench/update/progress_clock.h"
#include "testing/test_directory.h"

namespace hps::bench {
namespace {

using ::testing::HasSubstr;

// What needs a broker is measured by tools/bench_updates.py.
TEST(UpdateWorldTest, WithoutBrokersTheScenariosSayWhatIsMissing) {
  unsetenv(kBrokersVariable);
  const bool has_kafka = CheckKafka().ok();
  EXPECT_FALSE(FindBrokers().ok());
  const Options options = {.directory = "unused", .quick = true};
  for (const ScenarioFunction run : {RunIngestScenario, RunFreshnessScenario}) {
    const auto results = run(options);
    ASSERT_TRUE(results.ok()) << results.status();
    ASSERT_EQ(results->size(), 1U);
    EXPECT_THAT(results->front().skipped,
                HasSubstr(has_kafka ? "tools/bench_updates.py" : "HPS_KAFKA"));
  }
}

TEST(UpdateWorldTest, BrokersAreThoseOfTheVariable) {
  if (!CheckKafka().ok()) GTEST_SKIP() << CheckKafka();
  setenv(kBrokersVariable, "a:1,b:2", 1);
  EXPECT_EQ(FindBrokers().value(), "a:1,b:2");
  unsetenv(kBrokersVariable);
}

TEST(UpdateWorldTest, AnErrorLeavesNoFiles) {
  const TestDirectory directory;
  const auto world = UpdateWorld::Create({.directory = directory.Path("world"),
                                          .brokers = "",
                                          .model = "m",
                                          .dim = 4,
                                          .changes = 400});
  EXPECT_FALSE(world.ok());
  EXPECT_FALSE(std::filesystem::exists(directory.Path("world")));
}

TEST(ProgressClockTest, MeasuresFromATenthToTheEnd) {
  ProgressClock clock(100);
  clock.Note(5);
  clock.Note(50);  // the clock begins
  EXPECT_EQ(clock.share_per_second(), 0) << "it has not ended";
  const Stopwatch stopwatch;
  clock.Note(60);
  clock.Note(100);
  const double longest = stopwatch.seconds();
  const double rate = clock.share_per_second();
  EXPECT_GE(rate, 0.5 / (longest + 1));
  clock.Note(100);
  EXPECT_EQ(clock.share_per_second(), rate) << "it ends once";
}

TEST(UpdateWorldTest, ResidentMemoryIsRead) { EXPECT_GT(ResidentBytes(), 1U << 20); }

}  // namespace
}  // namespace hps::bench
