#include "tier/device_query.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace hps {
namespace {

DeviceCacheQuery Good() {
  return {.space = MemorySpace::kDevice, .row_bytes = 8, .row_stride_bytes = 16};
}

TEST(DeviceQueryTest, TakesWhatIsRight) {
  CheckDeviceQueries({}, 0);
  std::vector<DeviceCacheQuery> queries(kTablesPerCallMax, Good());
  queries[0].key_count = queries[1].key_count = 5;
  queries[2].convert_from = Dtype::kFloat16;
  CheckDeviceQueries(queries, 10);
}

TEST(DeviceQueryTest, EndsTheProcessAtABug) {
  const std::byte short_row{};
  const std::vector<std::function<void(DeviceCacheQuery&)>> bugs = {
      [](DeviceCacheQuery& query) { query.row_bytes = 0; },
      [](DeviceCacheQuery& query) { query.row_bytes = query.row_stride_bytes = kRowBytesMax + 1; },
      [](DeviceCacheQuery& query) {
        query.convert_from = Dtype::kFloat16;
        query.row_bytes = 7;
      },
      [](DeviceCacheQuery& query) { query.row_stride_bytes = 7; },
      [](DeviceCacheQuery& query) { query.space = MemorySpace::kHost; },
      [](DeviceCacheQuery& query) { query.key_count = SIZE_MAX; },  // the sum would wrap around
      [&](DeviceCacheQuery& query) {
        query.default_row = {&short_row, 1};
      },
      [](DeviceCacheQuery& query) {
        query.convert_from = Dtype::kBfloat16;
        query.row_stride_bytes = 15;
      }};
  for (const auto& bug : bugs) {
    std::vector<DeviceCacheQuery> queries(2, Good());
    queries[0].key_count = 5;
    bug(queries[1]);
    EXPECT_DEATH(CheckDeviceQueries(queries, 10), "device_query.h");
  }
  const std::vector<DeviceCacheQuery> too_many(kTablesPerCallMax + 1, Good());
  EXPECT_DEATH(CheckDeviceQueries(too_many, 10), "device_query.h");
}

}  // namespace
}  // namespace hps
