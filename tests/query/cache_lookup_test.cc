// Sessions with a device cache, on the host's stand-in for one.
#include "query/cache_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "l1_host/host_cache.h"
#include "query/test_query_world.h"

namespace hps {
namespace {

using testing::Each;
using testing::ElementsAre;

class CacheLookupTest : public testing::Test {
 protected:
  CacheLookupTest()
      : cache_(*MakeHostCache(
            {.device = 0, .bytes_max = uint64_t{4} << 20, .calls_max = 1, .call_keys_max = 16})),
        table_(MakeWorldTable({.keys = {1, 2, 3, 4, 5}}, nullptr)),
        world_(0, {cache_.get()}) {
    table_.served->AttachL1(0, *cache_->OpenTable(32, cache_->TableBytes(32, 100)));
    world_.Publish({&table_});
    session_ = world_.NewSession({.device = 0});
  }

  std::unique_ptr<DeviceCache> cache_;
  WorldTable table_;
  World world_;
  std::unique_ptr<LookupSession> session_;
};

TEST_F(CacheLookupTest, RowsRiseThroughTheLevels) {
  EXPECT_THAT(Ask(*session_, {2, 9, 2}).statuses,
              ElementsAre(KeyStatus::kHitL3, KeyStatus::kAbsent, KeyStatus::kHitL3));
  world_.executor().RunAll();
  const WorldAnswer held = Ask(*session_, {2, 9, 2, 3});
  EXPECT_THAT(held.statuses, ElementsAre(KeyStatus::kHitL1, KeyStatus::kAbsent, KeyStatus::kHitL1,
                                         KeyStatus::kHitL3));
  EXPECT_TRUE(StampedRow::Matches(1, 2, 0, held.row(2)));
  EXPECT_EQ(held.counts.total(), 4);
  ASSERT_TRUE(table_.served->l1(0)->Clear().ok());
  EXPECT_EQ(Ask(*session_, {2}).statuses[0], KeyStatus::kHitL2);
  world_.executor().RunAll();
  EXPECT_EQ(Ask(*session_, {2}).statuses[0], KeyStatus::kHitL1) << "promoted from L2";
}

TEST_F(CacheLookupTest, DeviceQueriesAreAnsweredOnTheDevice) {
  const std::vector<Key> keys = {5, 4, 77, 5};
  std::vector<std::byte> rows(keys.size() * 32, std::byte{0xcc});
  std::vector<KeyStatus> statuses(keys.size());
  const DeviceTableQuery query{.keys = {keys.data(), keys.size()},
                               .rows = {rows.data(), rows.size()},
                               .status = {statuses.data(), statuses.size()}};
  for (KeyStatus expected : {KeyStatus::kHitL3, KeyStatus::kHitL1}) {
    LookupCounts counts;
    ASSERT_TRUE(session_->Lookup(DeviceLookupRequest{.queries = {&query, 1}}, &counts).ok());
    EXPECT_THAT(statuses, ElementsAre(expected, expected, KeyStatus::kAbsent, expected));
    EXPECT_EQ(counts[expected], 3);
    EXPECT_TRUE(StampedRow::Matches(1, 5, 0, std::span(rows).last(32)));
    world_.executor().RunAll();
  }
  const auto converting = world_.NewSession({.device = 0, .output_dtype = Dtype::kFloat32});
  EXPECT_EQ(converting->Lookup(DeviceLookupRequest{.queries = {&query, 1}}, nullptr).code(),
            absl::StatusCode::kUnimplemented);
}

// The cache's calls take 16 keys: a larger look-up passes by the cache, and stays so while a change
// is open.
TEST_F(CacheLookupTest, ACacheThatFailsIsPassedBy) {
  Ask(*session_, {1});
  world_.executor().RunAll();
  ASSERT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL1);
  const ApplyEpoch open = table_.served->epochs().Begin();
  EXPECT_THAT(Ask(*session_, std::vector<Key>(17, 1)).statuses, Each(KeyStatus::kHitL2));
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL2) << "passed by";
  table_.served->epochs().Publish(open);
  EXPECT_EQ(Ask(*session_, {1}).statuses[0], KeyStatus::kHitL1);
  EXPECT_EQ(world_.statistics().tables[0].l1.errors, 1);
  EXPECT_EQ(world_.statistics().tables[0].keys.total(), 1 + 1 + 17 + 1 + 1);
}

// With a threshold of 0 nobody waits for L2; but where L1 can't hold anything L2 is the top level.
TEST_F(CacheLookupTest, WhereL1IsPassedByL2DecidesAboutWaiting) {
  const HostLookupRequest never_wait{.hit_rate_threshold = 0.0};
  Ask(*session_, {1});
  world_.executor().RunAll();
  ASSERT_TRUE(table_.served->l1(0)->Clear().ok());
  const ApplyEpoch open = table_.served->epochs().Begin();
  table_.served->l1_bypass(0).Trip();
  EXPECT_THAT(Ask(*session_, {1, 2}, 0, never_wait).statuses,
              ElementsAre(KeyStatus::kHitL2, KeyStatus::kDefaultPending));
  world_.executor().RunAll();
  EXPECT_THAT(Ask(*session_, {2}, 0, never_wait).statuses, ElementsAre(KeyStatus::kHitL2));
  table_.served->epochs().Publish(open);
  EXPECT_THAT(Ask(*session_, {2}, 0, never_wait).statuses, ElementsAre(KeyStatus::kDefaultPending));
  world_.executor().RunAll();
  EXPECT_THAT(Ask(*session_, {2}, 0, never_wait).statuses, ElementsAre(KeyStatus::kHitL1));
}

// Catches a session that kept its lease after an error until its next call, while others found
// none.
TEST_F(CacheLookupTest, ACallThatFailsGivesItsLeaseBack) {
  const WorldTable odd = MakeWorldTable({.name = "m/b", .stamp = 2, .keys = {1}}, nullptr);
  odd.served->AttachL1(0, *cache_->OpenTable(16, cache_->TableBytes(16, 100)));  // rows have 32
  world_.Publish({&table_, &odd});
  const auto failing = world_.NewSession({.device = 0});
  EXPECT_EQ(Ask(*failing, {1}, 1).statuses[0], KeyStatus::kHitL3);
  EXPECT_EQ(world_.statistics().tables[1].l1.errors, 1);
  Ask(*session_, {2});
  world_.executor().RunAll();
  EXPECT_EQ(Ask(*session_, {2}).statuses[0], KeyStatus::kHitL1);
  EXPECT_EQ(world_.statistics().tables[0].l1.errors, 0);
}

}  // namespace
}  // namespace hps
