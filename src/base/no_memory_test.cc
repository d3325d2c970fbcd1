#include "base/no_memory.h"

#include <gtest/gtest.h>

namespace hps {
namespace {

TEST(NoMemoryTest, IsOneStatus) {
  EXPECT_EQ(NoMemory().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(&NoMemory(), &NoMemory());
}

}  // namespace
}  // namespace hps
