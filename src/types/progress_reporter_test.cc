#include "types/progress_reporter.h"

#include <gtest/gtest.h>

#include <vector>

#include "testing/fakes/manual_executor.h"

namespace hps {
namespace {

TEST(ProgressReporterTest, ReportsAtOnceAndThenOnceInAnInterval) {
  ManualClock clock;
  std::vector<uint64_t> reported;
  const ProgressFunction function = [&](const Progress& progress) {
    EXPECT_EQ(progress.step, "writing");
    EXPECT_EQ(progress.total, 10U);
    reported.push_back(progress.done);
  };
  ProgressReporter progress(function, 10, clock);
  progress.Report("writing", 1);
  progress.Report("writing", 2);
  clock.Advance(kProgressInterval - Duration(1));
  progress.Report("writing", 3);
  clock.Advance(Duration(1));
  progress.Report("writing", 4);
  EXPECT_EQ(reported, (std::vector<uint64_t>{1, 4}));
}

TEST(ProgressReporterTest, WithoutAFunctionNothingIsReported) {
  ManualClock clock;
  const ProgressFunction none;
  ProgressReporter progress(none, 10, clock);
  progress.Report("writing", 1);
}

}  // namespace
}  // namespace hps
