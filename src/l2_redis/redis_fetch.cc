#include "l2_redis/redis_fetch.h"

#include <algorithm>
#include <vector>

#include "base/macros.h"

namespace hps {
namespace {

FetchCounts CountOutcomes(std::span<const FetchOutcome> outcomes) {
  FetchCounts counts;
  for (const FetchOutcome outcome : outcomes) {
    counts.misses += outcome == FetchOutcome::kMiss ? 1 : 0;
    counts.hits += outcome == FetchOutcome::kHit ? 1 : 0;
    counts.absent += outcome == FetchOutcome::kAbsent ? 1 : 0;
  }
  return counts;
}

void FetchTogether(RedisClient& client, std::span<TableFetch> fetches) {
  std::vector<std::unique_ptr<RedisFetchPart>> parts;
  std::vector<RedisBatch> batches;
  client.PrepareSlots(kNoDeadline);
  for (const TableFetch& fetch : fetches) {
    auto& table = static_cast<RedisFetchTable&>(*fetch.table);
    const FetchBatch& batch = fetch.batch;
    HPS_CHECK(&table.client() == &client);
    HPS_CHECK(batch.outcomes.size() == batch.keys.size() &&
              batch.rows.row_count == batch.keys.size());
    std::ranges::fill(batch.outcomes, FetchOutcome::kMiss);
    parts.push_back(table.BeginFetch(batch, parts.size()));
    batches.push_back(parts.back()->Requests());
  }
  client.Execute(batches, kNoDeadline);
  for (const std::unique_ptr<RedisFetchPart>& part : parts) part->End();
}

}  // namespace

absl::StatusOr<FetchCounts> RedisFetchTable::Fetch(const FetchBatch& batch, Deadline) {
  TableFetch fetch = {.table = this, .batch = batch};
  FetchFromRedis(client(), {&fetch, 1});
  return fetch.counts;
}

void FetchFromRedis(RedisClient& client, std::span<TableFetch> fetches) {
  if (std::ranges::any_of(fetches, [](auto& fetch) { return !fetch.batch.keys.empty(); }))
    FetchTogether(client, fetches);
  for (TableFetch& fetch : fetches) fetch.counts = CountOutcomes(fetch.batch.outcomes);
}

}  // namespace hps
