#include "testing/host_device_cache/direct_read.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace hps {
namespace {

constexpr size_t kRowBytes = 16;

// Memory of a level 2, written by hand.
class DirectReadTest : public testing::Test {
 protected:
  std::byte* Line(uint32_t partition, uint32_t number) {
    return lines_.data() + (size_t{partition} * direct_.line_count + number) * kDirectLineBytes;
  }
  static void PutKey(std::byte* line, uint32_t entry, Key key, uint16_t slot) {
    std::memcpy(line + entry * sizeof(Key), &key, sizeof(key));
    std::memcpy(line + kDirectSlotsOffset + entry * sizeof(slot), &slot, sizeof(slot));
  }
  // The byte that all of the row's bytes are; -1 = not found.
  int Read(Key key) {
    std::array<std::byte, kRowBytes> row{};
    return ReadDirectRow(direct_, key, row) ? std::to_integer<int>(row[kRowBytes - 1]) : -1;
  }

  alignas(64) std::array<std::byte, 2 * 8 * kDirectLineBytes> lines_{};
  alignas(16) std::array<std::byte, 2 * 10 * kRowBytes> rows_{};
  const DirectRows direct_{.lines = lines_.data(),
                           .rows = rows_.data(),
                           .partition_count = 2,
                           .line_count = 8,
                           .slot_count = 10,
                           .stride_bytes = kRowBytes};
};

TEST_F(DirectReadTest, FindsAKeyInBothOfItsLines) {
  for (size_t row = 0; row < 20; ++row)
    std::memset(rows_.data() + row * kRowBytes, static_cast<int>(row), kRowBytes);
  for (const Key key : {0, 1, -1, 77, 123456}) {
    const DirectPlace place = DirectPlaceOf(direct_, key);
    ASSERT_LT(place.partition, 2u);
    ASSERT_LT(place.second, 8u);
    ASSERT_NE(place.first, place.second);
    EXPECT_EQ(Read(key), -1);
    for (const uint32_t number : {place.first, place.second}) {
      std::byte* const line = Line(place.partition, number);
      PutKey(line, 0, key, 0);  // a free entry keeps its last key
      EXPECT_EQ(Read(key), -1);
      PutKey(line, 4, key, 3);
      EXPECT_EQ(Read(key), static_cast<int>(place.partition) * 10 + 2);
      PutKey(line, 4, key, kDirectAbsentSlot);
      EXPECT_EQ(Read(key), -1) << "it is known to be absent";
      std::memset(line, 0, kDirectLineBytes);
    }
  }
}

}  // namespace
}  // namespace hps
