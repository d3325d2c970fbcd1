#include <gtest/gtest.h>

#include "network/dense_network.h"

namespace hps {
namespace {

TEST(NoDenseGpuTest, SaysThatThisBuildHasNoGpus) {
  EXPECT_TRUE(absl::IsUnimplemented(MakeDeviceDenseNetwork({}, {}).status()));
}

}  // namespace
}  // namespace hps
