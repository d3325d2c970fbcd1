#include "query/fetch/direct_fetch.h"

#include <algorithm>

#include "base/macros.h"
#include "query/miss_route.h"

namespace hps {
namespace {

// Rows that are fetched before they are converted: few enough to stay in a core's cache.
constexpr size_t kConvertChunkKeys = 256;

}  // namespace

DirectFetch::DirectFetch(size_t keys_max, size_t row_bytes_max)
    : outcomes_(new FetchOutcome[keys_max]), native_rows_(kConvertChunkKeys * row_bytes_max) {}

bool DirectFetch::Fetch(TableLookup& table, QueryLookup& query, Deadline deadline) {
  if (!MissRoute::IsAskedAtOnce(table)) return false;
  const absl::StatusOr<FetchCounts> counts = FetchRows(query, deadline);
  if (!counts.ok()) {
    table.asks_l2[0] = false;
    table.table->l2()[0].health().Quarantine();
    table.counters->l2_errors().Add(counts.status().code());
    return false;
  }
  NoteOutcomes(query, *counts);
  return true;
}

absl::StatusOr<FetchCounts> DirectFetch::FetchRows(QueryLookup& query, Deadline deadline) {
  const LiveTable& table = *query.table->table;
  const bool converts = query.out.converts();
  const size_t row_bytes = table.row_bytes();
  const size_t keys_max = converts ? kConvertChunkKeys : query.key_count;
  FetchCounts sum;
  for (size_t first = 0; first < query.key_count; first += keys_max) {
    const size_t count = std::min(keys_max, query.key_count - first);
    const std::span<FetchOutcome> outcomes(outcomes_.get() + first, count);
    const FetchBatch batch = {
        .keys = {query.keys + first, count},
        .rows = {.data = converts ? native_rows_.data() : query.out.row(first),
                 .row_count = count,
                 .row_bytes = row_bytes,
                 .stride_bytes = converts ? row_bytes : query.out.stride_bytes()},
        .outcomes = outcomes};
    HPS_ASSIGN_OR_RETURN(const FetchCounts counts, table.l2()[0].table().Fetch(batch, deadline));
    sum.hits += counts.hits;
    sum.absent += counts.absent;
    for (size_t i = 0; converts && i < count; ++i) {
      if (outcomes[i] == FetchOutcome::kHit)
        query.out.Write(first + i, native_rows_.data() + i * row_bytes);
    }
  }
  return sum;
}

// The part has written the rows of its hits; this gives them their status, and the default row to
// what it knows to be absent.
void DirectFetch::NoteOutcomes(QueryLookup& query, const FetchCounts& counts) {
  answered_all_ = counts.hits + counts.absent == query.key_count;
  query.counts[KeyStatus::kHitL2] += counts.hits;
  if (counts.hits == query.key_count) {
    if (query.status != nullptr) std::fill_n(query.status, query.key_count, KeyStatus::kHitL2);
    return;
  }
  for (size_t i = 0; i < query.key_count; ++i) {
    if (outcomes_[i] == FetchOutcome::kHit) {
      if (query.status != nullptr) query.status[i] = KeyStatus::kHitL2;
    } else if (outcomes_[i] == FetchOutcome::kAbsent) {
      query.AnswerPosition(i, KeyStatus::kAbsent, nullptr);
    }
  }
}

}  // namespace hps
