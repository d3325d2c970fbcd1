// Each interface header compiles, and the value types behave as their comments say.
#include <gtest/gtest.h>

#include "hps/store.h"
#include "tier/device_cache.h"
#include "tier/durable_tier.h"
#include "tier/lossy_tier.h"
#include "tier/shared_table.h"

namespace hps {
namespace {

TEST(LookupCountsTest, AddsUp) {
  LookupCounts counts;
  counts[KeyStatus::kHitL2] = 3;
  counts[KeyStatus::kAbsent] += 2;
  EXPECT_EQ(counts.total(), 5u);
}

TEST(SpanTest, HostSpanConvertsFromContainers) {
  const std::vector<Key> keys = {1, 2};
  const HostSpan<const Key> span = keys;
  EXPECT_EQ(span.size(), 2u);
  EXPECT_EQ(span[1], 2);
  EXPECT_FALSE((std::is_constructible_v<DeviceSpan<const Key>, const std::vector<Key>&>));
}

}  // namespace
}  // namespace hps
