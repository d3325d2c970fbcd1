#include "server/grpc/stream_places.h"

#include <gtest/gtest.h>

namespace hps::server {
namespace {

TEST(StreamLimiterTest, BoundsEachConnectionAndAllTogether) {
  StreamLimiter places({.places_max = 3, .connection_places_max = 2});
  size_t first = 0;
  size_t second = 0;
  size_t third = 0;
  EXPECT_TRUE(places.Take(&first).ok());
  EXPECT_TRUE(places.Take(&first).ok());
  EXPECT_EQ(places.Take(&first).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(places.Take(&second).ok());
  EXPECT_EQ(places.taken(), 3u);
  EXPECT_EQ(places.Take(&second).code(), absl::StatusCode::kResourceExhausted) << "all are taken";
  EXPECT_EQ(places.Take(&third).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(third, 0u);
  places.Return(&first);
  EXPECT_TRUE(places.Take(&third).ok());
  places.Return(&first);
  places.Return(&second);
  places.Return(&third);
  EXPECT_EQ(places.taken(), 0u);
}

}  // namespace
}  // namespace hps::server
