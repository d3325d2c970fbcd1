#include "serving/current_rows.h"

#include <cstring>
#include <vector>

#include "base/macros.h"

namespace hps {

absl::Status FetchCurrentRows(LiveTable& table, const FetchBatch& batch, Deadline deadline) {
  const bool has_l2 = table.l2() != nullptr && !table.l2_health().quarantined();
  if (!has_l2 || !table.l2()->Fetch(batch, deadline).ok())
    return table.l3().Fetch(batch, deadline).status();
  std::vector<size_t> missed;
  std::vector<Key> keys;
  for (size_t i = 0; i < batch.keys.size(); ++i) {
    if (batch.outcomes[i] != FetchOutcome::kMiss) continue;
    missed.push_back(i);
    keys.push_back(batch.keys[i]);
  }
  if (missed.empty()) return absl::OkStatus();
  const size_t row_bytes = batch.rows.row_bytes;
  std::vector<std::byte> rows(keys.size() * row_bytes);
  std::vector<FetchOutcome> outcomes(keys.size());
  std::vector<Version> versions(keys.size());
  HPS_RETURN_IF_ERROR(table.l3()
                          .Fetch({.keys = keys,
                                  .rows = {.data = rows.data(),
                                           .row_count = keys.size(),
                                           .row_bytes = row_bytes,
                                           .stride_bytes = row_bytes},
                                  .outcomes = outcomes,
                                  .versions = versions},
                                 deadline)
                          .status());
  for (size_t i = 0; i < missed.size(); ++i) {
    const size_t at = missed[i];
    batch.outcomes[at] = outcomes[i];
    if (!batch.versions.empty()) batch.versions[at] = versions[i];
    if (outcomes[i] == FetchOutcome::kHit)
      std::memcpy(batch.rows.row(at), &rows[i * row_bytes], row_bytes);
  }
  return absl::OkStatus();
}

}  // namespace hps
