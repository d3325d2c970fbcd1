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

// Catches parts that overlap or exceed their block: each is filled with its own byte value.
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

// Catches a record that is accepted when the host has seen only one half of it.
TEST(MissRecordTest, ATornRecordIsNotBelieved) {
  const auto record_of = [](Key key, uint32_t position, uint32_t generation) {
    return MissRecord{.key = key, .position = position, .check = MissCheck(key, generation)};
  };
  const MissRecord empty{};
  const MissRecord old_record = record_of(7, 1, 4);
  const MissRecord new_record = record_of(-9, 2, 5);
  Key key = 0;
  EXPECT_TRUE(ReadMissRecord(new_record, 5, &key));
  EXPECT_EQ(key, -9);
  EXPECT_FALSE(ReadMissRecord(new_record, 4, &key));
  EXPECT_FALSE(ReadMissRecord(old_record, 5, &key));
  EXPECT_FALSE(ReadMissRecord(empty, 5, &key));
  for (const MissRecord& before : {empty, old_record}) {
    MissRecord torn = before;
    torn.key = new_record.key;  // the first half has arrived
    EXPECT_FALSE(ReadMissRecord(torn, 5, &key));
    torn = before;
    torn.position = new_record.position;  // the second half has arrived
    torn.check = new_record.check;
    EXPECT_FALSE(ReadMissRecord(torn, 5, &key));
  }
}

TEST(MissRecordTest, TheMultiplierIsDrawnAndOdd) {
  const MissBuffers a = CarveMissBuffers(1, nullptr, nullptr);
  const MissBuffers b = CarveMissBuffers(1, nullptr, nullptr);
  EXPECT_EQ(a.claim_multiplier % 2, 1u);
  EXPECT_NE(a.claim_multiplier, b.claim_multiplier);
}

}  // namespace
}  // namespace hps
