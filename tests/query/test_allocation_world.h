// Sessions over tables whose rows are all in L3, and a count of what a call allocates.
//
// It replaces operator new: exactly one file of a test program includes this.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "l2_memory/memory_tier.h"
#include "query/session_factory.h"
#include "testing/fakes/plain_tier.h"
#include "testing/memory/counted_new.h"
#include "tier/device_cache.h"

namespace hps {

class AllocationWorld : public testing::Test {
 protected:
  static constexpr size_t kTables = 5;
  static constexpr Key kRows = 4096;
  static constexpr uint32_t kDim = 16;

  // Before anything else. Every table has room for `l1_rows` rows in the cache; with twice kRows no
  // key gives way to another.
  void Open(std::unique_ptr<DeviceCache> cache, uint64_t l1_rows) {
    cache_ = std::move(cache);
    fetch_ = *WorkerPool::Create({.name = "fetch", .thread_count = 2});
    promote_ = *WorkerPool::Create({.name = "promote"});
    factory_ = *SessionFactory::Create(
        {.fetch_executor = fetch_.get(),
         .promote_executor = promote_.get(),
         .caches = {cache_.get()},
         .timeout = std::chrono::minutes(1),  // nothing degrades because a machine is busy
         .tuning = {.piece_bytes = 512, .alone_max = {}, .helper_share = Duration(100)}});
    model_ = std::make_unique<LiveModel>("m", factory_->epoch_domain(), *promote_);
    tier_ = MakeMemoryTier({});
    std::vector<std::shared_ptr<LiveTable>> tables;
    for (size_t t = 0; t < kTables; ++t) tables.push_back(MakeTable(t, l1_rows));
    EXPECT_TRUE(model_->Publish(std::move(tables)).ok());
  }
  ~AllocationWorld() override {
    fetch_.reset();
    promote_.reset();
  }

  std::shared_ptr<LiveTable> MakeTable(size_t number, uint64_t l1_rows) {
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
    LiveTable::Parts parts;
    parts.l3 = std::move(l3);
    parts.l2.push_back({.table = *tier_->OpenTable(spec, 1, uint64_t{4} << 20)});
    auto table = std::make_shared<LiveTable>(std::move(parts));
    table->AttachL1(
        0, *cache_->OpenTable(spec.row_bytes(), cache_->TableBytes(spec.row_bytes(), l1_rows)));
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
      rows.emplace_back(count * session.output_row_bytes({t}));
      statuses.emplace_back(count);
      queries.push_back({.table = {t}, .keys = keys, .rows = rows[t], .status = statuses[t]});
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
  std::unique_ptr<LiveModel> model_;
  std::unique_ptr<Executor> promote_;
  std::unique_ptr<Executor> fetch_;
};

}  // namespace hps
