#include "l2_memory/slot_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "l2_memory/row_pages.h"

namespace hps {
namespace {

class Pool {
 public:
  explicit Pool(const SlotGroups& groups)
      : ring_(groups.slot_count),
        words_(SlotPool::WordsFor(groups)),
        pool(groups, {ring_, words_}, domain) {}

 private:
  std::vector<SlotNumber> ring_;
  std::vector<uint64_t> words_;

 public:
  EpochDomain domain{2};
  SlotPool pool;
};

constexpr SlotGroups kPages = {.bits = 5, .slots = 28, .slot_count = 28 * 70};

TEST(SlotPoolTest, LendsFromTheGroupThatIsAskedFor) {
  for (const uint32_t group : {69u, 0u, 64u, 63u}) {
    Pool test(kPages);
    for (uint32_t i = 0; i < kPages.slots; ++i)
      ASSERT_EQ(test.pool.Take(group), kPages.Number(group, i));
    const SlotNumber other = test.pool.Take(group);
    ASSERT_NE(other, kNoSlot);
    EXPECT_NE(kPages.GroupOf(other), group);
  }
}

// Catches a search that skips a group, or finds one twice, where the summary's words meet.
TEST(SlotPoolTest, LendsEverySlotOnceWhateverTheGroups) {
  for (const uint32_t slots : {1u, 27u, 28u, 63u, 64u, 65u, 64u * 64u, 64u * 64u + 1u, 10'000u}) {
    for (const bool any : {false, true}) {
      const SlotGroups groups = {.bits = 6, .slots = 64, .slot_count = slots};
      Pool test(groups);
      std::set<SlotNumber> lent;
      for (uint32_t i = 0; i < slots; ++i) {
        const uint32_t group = any ? SlotPool::kAnyGroup : i * 7919 % groups.count();
        const SlotNumber slot = test.pool.Take(group);
        ASSERT_NE(slot, kNoSlot);
        ASSERT_LT(groups.IndexOf(slot), slots);
        if (any) {
          ASSERT_EQ(slot, i + 1);  // memory is touched from the front
        }
        ASSERT_TRUE(lent.insert(slot).second);
      }
      EXPECT_EQ(test.pool.Take(any ? SlotPool::kAnyGroup : 0), kNoSlot);
      EXPECT_EQ(test.pool.touched(), slots);
    }
  }
}

TEST(SlotPoolTest, LendsARetiredSlotAgainOnlyAfterTheGuardsThatMaySeeIt) {
  const SlotGroups groups = {.bits = 5, .slots = 28, .slot_count = 28};
  Pool test(groups);
  auto reader = test.domain.AddReader();
  ASSERT_TRUE(reader.ok());
  SlotNumber slot = kNoSlot;
  for (uint32_t i = 0; i < groups.slot_count; ++i) slot = test.pool.Take(0);
  {
    EpochDomain::Guard guard(*reader);
    test.pool.Retire(slot);
    EXPECT_EQ(test.pool.Take(0), kNoSlot);
  }
  EXPECT_EQ(test.pool.Take(0), slot);
  EXPECT_EQ(test.pool.Take(0), kNoSlot);
}

TEST(SlotPoolTest, NumbersOfSlotsFitTheirPages) {
  for (const size_t row_bytes : {64, 128, 256}) {
    const RowPage page = RowPageFor(row_bytes);
    const SlotGroups groups = {.bits = page.slot_bits, .slots = page.slots, .slot_count = 1000};
    uint32_t index = 0;
    for (uint32_t group = 0; group < 10; ++group) {
      for (uint32_t i = 0; i < groups.slots; ++i) {
        const SlotNumber slot = groups.Number(group, i);
        EXPECT_EQ(groups.GroupOf(slot), group);
        EXPECT_EQ(groups.InGroup(slot), i);
        EXPECT_EQ(groups.IndexOf(slot), index++);
      }
    }
  }
}

}  // namespace
}  // namespace hps
