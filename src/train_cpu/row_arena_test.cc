#include "train_cpu/row_arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "train_cpu/row_layout.h"

namespace hps {
namespace {

TEST(RowArena, RowsKeepTheirAddressesAndFreedSlotsAreTakenAgain) {
  constexpr uint32_t kRows = 50'000;  // several chunks
  RowArena arena(33);
  std::vector<RowHeader*> rows;
  for (uint32_t i = 0; i < kRows; ++i) {
    ASSERT_EQ(arena.Take(), i);
    rows.push_back(arena.at(i));
    rows[i]->key = i;
    rows[i]->is_live = true;
    for (size_t j = 0; j < 33; ++j) ValuesOf(rows[i])[j] = static_cast<float>(i);
  }
  for (uint32_t i = 0; i < kRows; ++i) {
    ASSERT_EQ(arena.at(i), rows[i]);
    ASSERT_EQ(rows[i]->key, i);
    for (size_t j = 0; j < 33; ++j) ASSERT_EQ(ValuesOf(rows[i])[j], static_cast<float>(i));
  }
  EXPECT_GE(arena.bytes(), kRows * RowStride(33));
  arena.Free(7);
  arena.Free(9);
  EXPECT_EQ(arena.Take(), 9U);
  EXPECT_FALSE(arena.at(9)->is_live);
  EXPECT_EQ(arena.Take(), 7U);
  EXPECT_EQ(arena.Take(), kRows);
  EXPECT_EQ(arena.slot_end(), kRows + 1);
}

TEST(RowLayout, NarrowRowsArePackedAndWideOnesTakeWholeLines) {
  EXPECT_EQ(RowStride(1), 48U);
  EXPECT_EQ(RowStride(4), 48U);
  EXPECT_EQ(RowStride(24), 128U);
  EXPECT_EQ(RowStride(32), 192U);
}

}  // namespace
}  // namespace hps
