// After warm-up a look-up allocates nothing on its thread: not when everything hits L1 or L2, and
// not when it misses and L3's workers answer. This program counts every operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/counted_new.h"
#include "base/executor.h"
#include "l1_host/host_cache.h"
#include "l2_memory/memory_tier.h"
#include "query/session_factory.h"
#include "tier/plain_tier.h"
#include "tier/stamped_row.h"

namespace hps {
namespace {

constexpr size_t kTables = 5;
constexpr Key kRows = 4096;
constexpr uint32_t kDim = 16;

class AllocationTest : public testing::Test {
 protected:
  AllocationTest() {
    fetch_ = *WorkerPool::Create({.name = "fetch", .thread_count = 2});
    promote_ = *WorkerPool::Create({.name = "promote"});
    cache_ = *MakeHostCache({.device = 0, .bytes_max = uint64_t{64} << 20});
    factory_ = *SessionFactory::Create(
        {.fetch_executor = fetch_.get(),
         .promote_executor = promote_.get(),
         .caches = {cache_.get()},
         .timeout = std::chrono::minutes(1),  // nothing degrades because a machine is busy
         .tuning = {.piece_bytes = 512, .alone_max = {}, .helper_share = Duration(100)}});
    model_ = std::make_unique<ModelState>("m", factory_->epoch_domain(), *promote_);
    tier_ = MakeMemoryTier({});
    std::vector<std::shared_ptr<ServedTable>> tables;
    for (size_t t = 0; t < kTables; ++t) tables.push_back(MakeTable(t));
    EXPECT_TRUE(model_->Publish(std::move(tables)).ok());
  }
  ~AllocationTest() override {
    fetch_.reset();
    promote_.reset();
  }

  std::shared_ptr<ServedTable> MakeTable(size_t number) {
    const TableSpec spec{
        .name = "m/t" + std::to_string(number), .dim = kDim, .dtype = Dtype::kFloat16};
    auto l3 = std::make_unique<PlainDurableTable>(spec);
    std::vector<Key> keys(kRows);
    std::iota(keys.begin(), keys.end(), 0);
    std::vector<std::byte> rows(keys.size() * spec.row_bytes());
    const RowBatch batch{.keys = keys,
                         .rows = {.data = rows.data(),
                                  .row_count = keys.size(),
                                  .row_bytes = spec.row_bytes(),
                                  .stride_bytes = spec.row_bytes()}};
    EXPECT_TRUE(l3->Write({.upserts = batch}).ok());
    ServedTable::Parts parts;
    parts.l3 = std::move(l3);
    parts.l2 = *tier_->OpenTable(spec, 1, uint64_t{4} << 20);
    auto table = *ServedTable::Create(std::move(parts));
    table->AttachL1(
        0, *cache_->OpenTable(spec.row_bytes(), cache_->TableBytes(spec.row_bytes(), kRows)));
    return table;
  }

  // Allocations on this thread in one call for `count` keys from `first` on, of every table.
  uint64_t AllocationsOfCall(LookupSession& session, Key first, size_t count, double threshold,
                             LookupCounts* counts) {
    std::vector<Key> keys(count);
    std::iota(keys.begin(), keys.end(), first);
    std::vector<std::vector<std::byte>> rows;
    std::vector<std::vector<KeyStatus>> statuses;
    std::vector<HostTableQuery> queries;
    for (uint32_t t = 0; t < kTables; ++t) {
      rows.emplace_back(count * session.output_row_bytes(t));
      statuses.emplace_back(count);
      queries.push_back({.table = t, .keys = keys, .rows = rows[t], .status = statuses[t]});
    }
    const HostLookupRequest request{.queries = queries, .hit_rate_threshold = threshold};
    const uint64_t before = allocations_here;
    const absl::Status status = session.Lookup(request, counts);
    const uint64_t allocations = allocations_here - before;
    EXPECT_TRUE(status.ok()) << status;
    return allocations;
  }

  std::unique_ptr<DeviceCache> cache_;
  std::unique_ptr<SessionFactory> factory_;
  std::unique_ptr<LossyTier> tier_;
  std::unique_ptr<ModelState> model_;
  std::unique_ptr<Executor> promote_;
  std::unique_ptr<Executor> fetch_;
};

TEST_F(AllocationTest, TheCounterCounts) {
  const uint64_t before = allocations_here;
  const auto value = std::make_unique<int>(1);
  EXPECT_EQ(allocations_here, before + 1);
}

TEST_F(AllocationTest, NothingIsAllocatedAtAnyLevel) {
  for (std::optional<Dtype> output_dtype : {std::optional<Dtype>{}, {Dtype::kFloat32}}) {
    for (const auto& table : model_->Tables()) ASSERT_TRUE(table->l2()->Clear().ok());
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
      ASSERT_TRUE(table->l2()->Clear().ok());
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

}  // namespace
}  // namespace hps
