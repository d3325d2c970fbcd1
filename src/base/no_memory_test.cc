#include "base/no_memory.h"

#include <gtest/gtest.h>

#include "absl/status/statusor.h"

namespace hps {
namespace {

TEST(NoMemoryTest, IsOneStatus) {
  EXPECT_EQ(NoMemory().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(&NoMemory(), &NoMemory());
}

TEST(NoMemoryTest, AFailedAllocationIsAStatusThatSaysForWhat) {
  const auto fails = []() -> absl::StatusOr<int> { throw std::bad_alloc(); };
  const absl::StatusOr<int> failed = WithMemoryFor("a test", fails);
  EXPECT_EQ(failed.status(), absl::ResourceExhaustedError("no memory for a test"));
  const auto works = [] { return absl::StatusOr<int>(3); };
  EXPECT_EQ(*WithMemoryFor("a test", works), 3);
}

}  // namespace
}  // namespace hps
