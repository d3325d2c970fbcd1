#include "testing/host_device_cache/slab_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace hps {
namespace {

using Inserted = SlabTable::Inserted;

std::vector<std::byte> RowOf(Key key) { return std::vector<std::byte>(3, std::byte(key & 0xff)); }

bool Holds(const SlabTable& table, Key key) {
  const std::byte* row = table.Find(key);
  if (row == nullptr) return false;
  EXPECT_EQ(std::vector<std::byte>(row, row + 3), RowOf(key));
  return true;
}

TEST(SlabTableTest, OneSlabsetHoldsFourteenKeysAndEvictsTheLeastRecentlyUsed) {
  auto table = SlabTable::Create(SlabTable::kSlabsMin, 3);
  ASSERT_TRUE(table.ok()) << table.status();
  for (Key key = 0; key < 14; ++key) EXPECT_EQ(table->Insert(key, RowOf(key)), Inserted::kWithRoom);
  EXPECT_EQ(table->key_count(), 14u);
  EXPECT_NE(table->FindAndTouch(0), nullptr);
  EXPECT_NE(table->Find(1), nullptr);  // Find alone is no use
  EXPECT_EQ(table->Insert(14, RowOf(14)), Inserted::kByEviction);
  EXPECT_FALSE(Holds(*table, 1));
  EXPECT_EQ(table->Insert(15, RowOf(15)), Inserted::kByEviction);
  EXPECT_FALSE(Holds(*table, 2));
  EXPECT_EQ(table->key_count(), 14u);
  for (Key key = 0; key < 16; ++key) EXPECT_EQ(Holds(*table, key), key != 1 && key != 2) << key;
}

TEST(SlabTableTest, MovesResidentsRatherThanEvicting) {
  auto table = SlabTable::Create(100, 3);
  ASSERT_TRUE(table.ok()) << table.status();
  Key key = 0;
  size_t evictions = 0;
  for (; key < 600; ++key)
    evictions += table->Insert(key, RowOf(key)) == Inserted::kByEviction ? 1 : 0;
  EXPECT_EQ(table->key_count(), 600 - evictions);
  size_t held = 0;
  for (Key k = 0; k < key; ++k) held += Holds(*table, k) ? 1 : 0;
  EXPECT_EQ(held, table->key_count());
  EXPECT_LE(evictions, 10u);  // at a fill of 6/7; without moves there are more than 20
}

TEST(SlabTableTest, ErasedSlotsAreUsedAgain) {
  auto table = SlabTable::Create(SlabTable::kSlabsMin, 3);
  ASSERT_TRUE(table.ok()) << table.status();
  for (Key key = 0; key < 14; ++key) table->Insert(key, RowOf(key));
  for (Key key = 0; key < 14; ++key) {
    EXPECT_TRUE(table->Erase(key));
    EXPECT_FALSE(table->Erase(key));
    EXPECT_EQ(table->Insert(key + 100, RowOf(key + 100)), Inserted::kWithRoom);
  }
  for (Key key = 0; key < 14; ++key) EXPECT_TRUE(Holds(*table, key + 100));
  table->Clear();
  EXPECT_EQ(table->key_count(), 0u);
  EXPECT_FALSE(Holds(*table, 100));
}

}  // namespace
}  // namespace hps
