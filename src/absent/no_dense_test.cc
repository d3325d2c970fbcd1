#include <gtest/gtest.h>

#include "network/dense_network.h"

namespace hps {
namespace {

TEST(NoDenseTest, SaysThatThisBuildHasNoEngine) {
  EXPECT_TRUE(absl::IsUnimplemented(MakeDenseNetwork({}, {}).status()));
}

}  // namespace
}  // namespace hps
