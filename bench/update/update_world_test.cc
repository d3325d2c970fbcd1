#include "bench/update/update_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "bench/scenario.h"
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

TEST(UpdateWorldTest, ResidentMemoryIsRead) { EXPECT_GT(ResidentBytes(), 1U << 20); }

}  // namespace
}  // namespace hps::bench
