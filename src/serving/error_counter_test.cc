#include "serving/error_counter.h"

#include <gtest/gtest.h>

#include <numeric>

namespace hps {
namespace {

TEST(ErrorCounterTest, CountsByCode) {
  ErrorCounter counter;
  counter.Add(absl::StatusCode::kDeadlineExceeded);
  counter.Add(absl::StatusCode::kDeadlineExceeded);
  counter.Add(absl::StatusCode::kUnauthenticated);
  counter.Add(static_cast<absl::StatusCode>(99));
  ErrorCounts counts{};
  EXPECT_EQ(counter.AddTo(&counts), 4u);
  EXPECT_EQ(counter.AddTo(&counts), 4u);
  EXPECT_EQ(counts[static_cast<size_t>(absl::StatusCode::kDeadlineExceeded)], 4u);
  EXPECT_EQ(counts[static_cast<size_t>(absl::StatusCode::kUnauthenticated)], 2u);
  EXPECT_EQ(counts[static_cast<size_t>(absl::StatusCode::kUnknown)], 2u);
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), uint64_t{0}), 8u);
}

}  // namespace
}  // namespace hps
