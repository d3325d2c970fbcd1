// After warm-up a lookup allocates nothing on its thread: not when everything hits L1 or L2, and
// not when it misses and L3's workers answer. This program counts every operator new.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "testing/host_device_cache/host_cache.h"
#include "tests/query/test_allocation_world.h"

namespace hps {
namespace {

class AllocationTest : public AllocationWorld {
 protected:
  AllocationTest() : AllocationTest(kRows) {}
  explicit AllocationTest(uint64_t l1_rows) {
    Open(*MakeHostCache({.device = 0, .bytes_max = uint64_t{64} << 20}), l1_rows);
  }
};

// Keys give way to others in L1.
class SmallCacheAllocationTest : public AllocationTest {
 protected:
  SmallCacheAllocationTest() : AllocationTest(kRows / 8) {}
};

// Rows of misses need memory of the session's.
class NoStagingAllocationTest : public AllocationWorld {
 protected:
  NoStagingAllocationTest() {
    Open(*MakeHostCache({.device = 0, .bytes_max = uint64_t{64} << 20, .call_staging_bytes = 0}),
         kRows);
  }
};

TEST_F(AllocationTest, TheCounterCounts) {
  const uint64_t before = allocations_here;
  const auto value = std::make_unique<int>(1);
  EXPECT_EQ(allocations_here, before + 1);
}

TEST_F(AllocationTest, NothingIsAllocatedAtAnyLevel) {
  for (std::optional<Dtype> output_dtype : {std::optional<Dtype>{}, {Dtype::kFloat32}}) {
    for (const auto& table : model_->Tables()) ASSERT_TRUE(table->l2()[0].table().Clear().ok());
    auto session = factory_->NewSession(*model_, {.output_dtype = output_dtype});
    ASSERT_TRUE(session.ok());
    LookupCounts counts;
    AllocationsOfCall(**session, 0, 100, 1.0, &counts);  // warms up
    ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
    EXPECT_EQ(AllocationsOfCall(**session, 0, 100, 1.0, &counts), 0);
    EXPECT_EQ(counts[KeyStatus::kHitL2], 100 * kTables);
    EXPECT_EQ(AllocationsOfCall(**session, 50, 200, 1.0, &counts), 0);
    EXPECT_EQ(counts[KeyStatus::kHitL3], 150 * kTables) << "answered by the workers";
    ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
    EXPECT_EQ(AllocationsOfCall(**session, 200, 300, 0.1, &counts), 0);
    EXPECT_EQ(counts[KeyStatus::kDefaultPending], 250 * kTables);
    ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
    EXPECT_EQ(AllocationsOfCall(**session, -50, 100, 1.0, &counts), 0);
    EXPECT_EQ(counts[KeyStatus::kAbsent], 50 * kTables);
    ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
  }
}

// The same through L1, whose misses are fetched in pieces with helpers.
TEST_F(AllocationTest, NothingIsAllocatedThroughACache) {
  for (std::optional<Dtype> output_dtype : {std::optional<Dtype>{}, {Dtype::kFloat32}}) {
    for (const auto& table : model_->Tables()) {
      ASSERT_TRUE(table->l1(0)->Clear().ok());
      ASSERT_TRUE(table->l2()[0].table().Clear().ok());
    }
    auto session = factory_->NewSession(*model_, {.device = 0, .output_dtype = output_dtype});
    ASSERT_TRUE(session.ok());
    LookupCounts counts;
    AllocationsOfCall(**session, 0, 1000, 1.0, &counts);  // warms up
    ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
    EXPECT_EQ(AllocationsOfCall(**session, 0, 1000, 1.0, &counts), 0);
    EXPECT_EQ(counts[KeyStatus::kHitL1], 1000 * kTables) << "all was promoted";
    for (const auto& table : model_->Tables()) ASSERT_TRUE(table->l1(0)->Clear().ok());
    EXPECT_EQ(AllocationsOfCall(**session, 100, 1000, 1.0, &counts), 0);
    EXPECT_EQ(counts[KeyStatus::kHitL2], 900 * kTables);
    EXPECT_EQ(counts[KeyStatus::kHitL3], 100 * kTables);
    ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
    EXPECT_EQ(AllocationsOfCall(**session, 1000, 200, 0.1, &counts), 0);
    EXPECT_EQ(counts[KeyStatus::kDefaultPending], 100 * kTables);
    ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
  }
}

// Catches a session that keeps room for each query that has ever needed it: after some calls that
// is as many times the largest call as a call has queries.
TEST_F(NoStagingAllocationTest, TheRoomOfACallServesEveryQueryOfTheNext) {
  auto session = factory_->NewSession(*model_, {.device = 0});
  ASSERT_TRUE(session.ok());
  std::vector<Key> keys(1000);
  std::iota(keys.begin(), keys.end(), 0);
  std::vector<std::byte> rows(keys.size() * (*session)->output_row_bytes({0}));
  for (uint32_t asked = 0; asked < kTables; ++asked) {
    std::vector<HostTableQuery> queries;
    for (uint32_t t = 0; t < kTables; ++t) queries.push_back({.table = {t}});
    queries[asked].keys = keys;
    queries[asked].rows = rows;
    LookupCounts counts;
    const uint64_t before = allocations_here;
    const absl::Status status = (*session)->Lookup({.queries = queries}, &counts);
    const uint64_t allocations = allocations_here - before;
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(counts[KeyStatus::kHitL3], keys.size());
    EXPECT_EQ(allocations, asked == 0 ? 1 : 0) << "of query " << asked;
    ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
  }
}

TEST_F(SmallCacheAllocationTest, NothingIsAllocatedWhereKeysGiveWayToOthers) {
  constexpr size_t kKeys = kRows / 4;
  for (std::optional<Dtype> output_dtype : {std::optional<Dtype>{}, {Dtype::kFloat32}}) {
    auto session = factory_->NewSession(*model_, {.device = 0, .output_dtype = output_dtype});
    ASSERT_TRUE(session.ok());
    LookupCounts counts;
    AllocationsOfCall(**session, 0, kKeys, 1.0, &counts);  // warms up
    for (int call = 0; call < 3; ++call) {
      ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
      EXPECT_EQ(AllocationsOfCall(**session, 0, kKeys, 1.0, &counts), 0);
      EXPECT_GT(counts[KeyStatus::kHitL1], 0);
      EXPECT_GT(counts[KeyStatus::kHitL2], 0) << "not all keys have room in L1";
      EXPECT_EQ(counts[KeyStatus::kHitL1] + counts[KeyStatus::kHitL2], kKeys * kTables);
    }
    ASSERT_TRUE(factory_->DrainPromotions(std::chrono::minutes(1)).ok());
  }
}

}  // namespace
}  // namespace hps
