#include "server/grpc/stream_places.h"

#include <gtest/gtest.h>

namespace hps::server {
namespace {

TEST(StreamPlacesTest, BoundsEachConnectionAndAllTogether) {
  StreamPlaces places({.places_max = 3, .connection_places_max = 2});
  EXPECT_TRUE(places.Take("ipv4:1").ok());
  EXPECT_TRUE(places.Take("ipv4:1").ok());
  EXPECT_EQ(places.Take("ipv4:1").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(places.Take("ipv4:2").ok());
  EXPECT_EQ(places.taken(), 3u);
  EXPECT_EQ(places.Take("ipv4:2").code(), absl::StatusCode::kResourceExhausted) << "all are taken";
  EXPECT_EQ(places.Take("ipv4:3").code(), absl::StatusCode::kResourceExhausted);
  places.Return("ipv4:1");
  EXPECT_TRUE(places.Take("ipv4:3").ok());
  places.Return("ipv4:1");
  places.Return("ipv4:2");
  places.Return("ipv4:3");
  EXPECT_EQ(places.taken(), 0u);
}

}  // namespace
}  // namespace hps::server
