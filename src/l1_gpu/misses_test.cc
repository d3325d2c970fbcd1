#include "l1_gpu/misses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/limits.h"
#include "l1_gpu/kernels/query_task.h"

namespace hps {
namespace {

struct Part {
  void* begin;
  size_t bytes;
};

// Would catch parts that overlap or leave their block: each is filled with a byte of its own.
void ExpectApart(const std::vector<Part>& parts, const std::vector<std::byte>& block) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto* begin = static_cast<const std::byte*>(parts[i].begin);
    ASSERT_TRUE(begin >= block.data() && begin + parts[i].bytes <= block.data() + block.size());
    std::memset(parts[i].begin, static_cast<int>(i + 1), parts[i].bytes);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto* begin = static_cast<const std::byte*>(parts[i].begin);
    EXPECT_TRUE(std::all_of(begin, begin + parts[i].bytes,
                            [&](std::byte b) { return b == std::byte(i + 1); }))
        << "part " << i << " of " << parts.size();
  }
}

TEST(MissBuffersTest, PartsLieApartWithinTheirBlocks) {
  for (size_t keys_max : {1, 31, 32, 33, 100'001}) {
    std::vector<std::byte> device(MissDeviceBytes(keys_max));
    std::vector<std::byte> pinned(MissPinnedBytes(keys_max));
    const MissBuffers buffers = CarveMissBuffers(keys_max, device.data(), pinned.data());
    ExpectApart({{buffers.claims, 2 * keys_max * sizeof(uint64_t)},
                 {buffers.counters, 8 * kTablesPerCallMax * sizeof(uint32_t)},
                 {buffers.unique_of, keys_max * sizeof(uint32_t)},
                 {buffers.positions, keys_max * sizeof(uint32_t)},
                 {buffers.keys, keys_max * sizeof(Key)},
                 {buffers.duplicates, keys_max * sizeof(DuplicatePosition)},
                 {buffers.queries, kTablesPerCallMax * sizeof(QueryTask)}},
                device);
    ExpectApart({{buffers.records, keys_max * sizeof(MissRecord)},
                 {buffers.duplicate_records, keys_max * sizeof(DuplicateRecord)},
                 {buffers.pinned_queries, kTablesPerCallMax * sizeof(QueryTask)}},
                pinned);
  }
}

}  // namespace
}  // namespace hps
