#include "base/server_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace hps {
namespace {

ServerConfig With(uint32_t threads, uint32_t lookups) {
  ServerConfig config;
  config.threads = threads;
  config.lookups = lookups;
  return config;
}

TEST(ServerThreadsTest, FollowTheConfigurationOrTheCores) {
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  EXPECT_EQ(ProtocolThreads(With(0, 0)), 2 * cores);
  EXPECT_EQ(ProtocolThreads(With(7, 0)), 7U);
  EXPECT_EQ(LookupSlots(With(0, 0)), cores);
  EXPECT_EQ(LookupSlots(With(100, 40)), 40U);
  EXPECT_EQ(LookupSlots(With(100, 0)), std::min<size_t>(cores, 99));
}

TEST(ServerThreadsTest, LookUpsLeaveAThreadButAreNeverNone) {
  EXPECT_EQ(LookupSlots(With(8, 8)), 7U);
  EXPECT_EQ(LookupSlots(With(2, 2)), 1U);
  EXPECT_EQ(LookupSlots(With(1, 1)), 1U);
}

}  // namespace
}  // namespace hps
