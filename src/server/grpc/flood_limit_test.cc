#include "server/grpc/flood_limit.h"

#include <gtest/gtest.h>

namespace hps::server {
namespace {

constexpr size_t kMost = FloodLimit::kIdleBytesMax;

TEST(FloodLimitTest, CountsBytesThatAreNotUsefulUntilSomethingIsAnswered) {
  FloodLimit limit;
  limit.OnReceived(kMost + 10);
  limit.OnUseful(10);
  EXPECT_FALSE(limit.IsExceeded());
  limit.OnReceived(1);
  EXPECT_TRUE(limit.IsExceeded());
  limit.OnAnswered();
  EXPECT_FALSE(limit.IsExceeded());
  limit.OnUseful(100);  // more than was counted
  limit.OnReceived(kMost);
  EXPECT_FALSE(limit.IsExceeded());
}

TEST(FloodLimitTest, AllowsDataOfCallsThatWereEndedEarlyOnce) {
  FloodLimit limit;
  limit.AllowLate(100, 150);
  limit.AllowLate(100, 150);
  limit.OnReceived(kMost + 150);
  EXPECT_FALSE(limit.IsExceeded());
  limit.OnReceived(1);
  EXPECT_TRUE(limit.IsExceeded());
}

}  // namespace
}  // namespace hps::server
