#include "testing/fakes/stamped_row.h"

#include <gtest/gtest.h>

#include <vector>

namespace hps {
namespace {

TEST(StampedRowTest, TellsTableKeyVersionAndEveryByte) {
  for (size_t row_bytes : {1u, 3u, 4u, 8u, 15u, 16u, 64u, 127u, 512u}) {
    std::vector<std::byte> row(row_bytes);
    StampedRow::Write(1, -7, 3, row);
    EXPECT_TRUE(StampedRow::Matches(1, -7, 3, row));
    if (row_bytes < 8) continue;  // narrow rows may collide
    EXPECT_FALSE(StampedRow::Matches(2, -7, 3, row) && row_bytes >= 16);
    EXPECT_FALSE(StampedRow::Matches(1, -8, 3, row) && row_bytes >= 16);
    EXPECT_FALSE(StampedRow::Matches(1, -7, 4, row));
    for (size_t i = 0; i < row_bytes; ++i) {
      row[i] ^= std::byte{1};
      EXPECT_FALSE(StampedRow::Matches(1, -7, 3, row)) << i;
      row[i] ^= std::byte{1};
    }
  }
}

TEST(StampedRowTest, FindsTheVersionAndSeesATornRow) {
  std::vector<std::byte> row(32), other(32);
  StampedRow::Write(1, 5, 9, row);
  EXPECT_EQ(StampedRow::VersionOf(1, 5, row), 9u);
  StampedRow::Write(1, 5, 10, other);
  std::copy(other.begin() + 16, other.end(), row.begin() + 16);
  EXPECT_EQ(StampedRow::VersionOf(1, 5, row), std::nullopt);
}

}  // namespace
}  // namespace hps
