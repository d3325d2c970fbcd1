#include "serving/current_rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/macros.h"

namespace hps {
namespace {

using FetchFunction = absl::FunctionRef<absl::Status(const FetchBatch&)>;

// Asks for the keys of `batch` that are kMiss. After an error all of these are kMiss.
absl::Status FetchMissing(const FetchBatch& batch, FetchFunction fetch) {
  const auto miss_count = std::ranges::count(batch.outcomes, FetchOutcome::kMiss);
  if (miss_count == 0) return absl::OkStatus();
  if (static_cast<size_t>(miss_count) == batch.keys.size()) {
    const absl::Status fetched = fetch(batch);
    if (!fetched.ok()) std::ranges::fill(batch.outcomes, FetchOutcome::kMiss);
    return fetched;
  }
  std::vector<size_t> missed;
  std::vector<Key> keys;
  for (size_t i = 0; i < batch.keys.size(); ++i) {
    if (batch.outcomes[i] != FetchOutcome::kMiss) continue;
    missed.push_back(i);
    keys.push_back(batch.keys[i]);
  }
  const size_t row_bytes = batch.rows.row_bytes;
  std::vector<std::byte> rows(keys.size() * row_bytes);
  std::vector<FetchOutcome> outcomes(keys.size());
  std::vector<Version> versions(keys.size());
  HPS_RETURN_IF_ERROR(fetch({.keys = keys,
                             .rows = {.data = rows.data(),
                                      .row_count = keys.size(),
                                      .row_bytes = row_bytes,
                                      .stride_bytes = row_bytes},
                             .outcomes = outcomes,
                             .versions = versions}));
  for (size_t i = 0; i < missed.size(); ++i) {
    const size_t at = missed[i];
    batch.outcomes[at] = outcomes[i];
    if (!batch.versions.empty()) batch.versions[at] = versions[i];
    if (outcomes[i] == FetchOutcome::kHit)
      std::memcpy(batch.rows.row(at), &rows[i * row_bytes], row_bytes);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status FetchCurrentRows(LiveTable& table, const FetchBatch& batch, Deadline deadline) {
  std::ranges::fill(batch.outcomes, FetchOutcome::kMiss);
  for (L2Part& part : table.l2()) {
    if (part.health().quarantined()) continue;
    // What a part does not answer comes from those below it.
    FetchMissing(batch, [&](const FetchBatch& missing) {
      return part.table().Fetch(missing, deadline).status();
    }).IgnoreError();
  }
  return FetchMissing(batch, [&](const FetchBatch& missing) {
    return table.l3().Fetch(missing, deadline).status();
  });
}

}  // namespace hps
