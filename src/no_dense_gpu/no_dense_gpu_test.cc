#include <gtest/gtest.h>

#include "dense/dense_network.h"

namespace hps {
namespace {

TEST(NoDenseGpuTest, SaysThatThisBuildHasNoGpus) {
  EXPECT_TRUE(absl::IsUnimplemented(MakeDeviceDenseNetwork({}, {}).status()));
}

}  // namespace
}  // namespace hps
