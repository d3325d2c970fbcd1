#include "testing/host_device_cache/host_cache_table.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "hps/table_spec.h"

namespace hps {
namespace {

TEST(HostCacheTableTest, SlabsFitIntoTheBytesThatTheyNeedAndIntoNoLess) {
  for (size_t row_bytes : {size_t{1}, size_t{128}, size_t{1000}, kRowBytesMax}) {
    for (uint64_t slabs : {uint64_t{2}, uint64_t{3}, uint64_t{37'449}, uint64_t{1} << 40}) {
      const uint64_t bytes = HostCacheTable::BytesOf(row_bytes, slabs);
      EXPECT_EQ(HostCacheTable::SlabsWithin(row_bytes, bytes), slabs) << row_bytes;
      EXPECT_EQ(HostCacheTable::SlabsWithin(row_bytes, bytes - 1), slabs - 1) << row_bytes;
    }
  }
  EXPECT_EQ(HostCacheTable::SlabsWithin(1, 0), 0u);
  EXPECT_EQ(HostCacheTable::BytesOf(kRowBytesMax, UINT64_MAX), UINT64_MAX);
}

TEST(HostCacheTableTest, BytesCoverSlabsRowsAndWatermarks) {
  for (uint64_t slabs : {2, 100, 10'000, 1'000'000}) {
    const Fence fence(slabs * SlabTable::kSlabSlots);
    EXPECT_GE(HostCacheTable::BytesOf(16, slabs), slabs * SlabTable::SlabBytes(16) + fence.bytes());
  }
}

TEST(HostCacheTableTest, GivesItsBudgetBackWhenItDies) {
  ByteBudget budget("a cache", 100);
  auto table = HostCacheTable::Create(16, SlabTable::kSlabsMin, *budget.Lend(100));
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_FALSE(budget.Lend(1).ok());
  table->reset();
  EXPECT_TRUE(budget.Lend(100).ok());
}

TEST(HostCacheTableTest, ReadLeavesTheOutputAloneWhereNothingIsHeld) {
  auto table = HostCacheTable::Create(1, SlabTable::kSlabsMin, {});
  ASSERT_TRUE(table.ok()) << table.status();
  const Key key = 7;
  std::byte row{1};
  ASSERT_TRUE((*table)->InsertIfAbsent({.keys = {&key, 1}, .rows = {&row, 1, 1, 1}}, 0).ok());
  std::byte out{9};
  EXPECT_FALSE((*table)->Read(8, &out));
  EXPECT_EQ(out, std::byte{9});
  EXPECT_TRUE((*table)->Read(7, &out));
  EXPECT_EQ(out, std::byte{1});
}

}  // namespace
}  // namespace hps
