#include "model/preload.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/macros.h"

namespace hps {
namespace {

constexpr size_t kBatchKeysMax = 4096;
constexpr size_t kBatchBytes = 4 << 20;

bool IsFull(const LossyTable& table) {
  const LevelStatistics statistics = table.Statistics();
  return statistics.evictions != 0 || statistics.dropped != 0;
}

}  // namespace

absl::StatusOr<uint64_t> PreloadTable(ServedTable& table, double share) {
  if (table.l2() == nullptr || share <= 0) return 0;
  const ApplyEpoch epoch = table.epochs().published();  // before the first row is read
  const size_t row_bytes = table.row_bytes();
  const size_t batch_keys = std::clamp<size_t>(kBatchBytes / row_bytes, 1, kBatchKeysMax);
  std::vector<Key> keys(batch_keys);
  std::vector<Version> versions(batch_keys);
  std::vector<std::byte> rows(batch_keys * row_bytes);
  const HostRows view = {.data = rows.data(),
                         .row_count = batch_keys,
                         .row_bytes = row_bytes,
                         .stride_bytes = row_bytes};
  const double row_count = static_cast<double>(table.l3().Info().row_count);
  uint64_t remaining = static_cast<uint64_t>(std::ceil(row_count * share));
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<RowCursor> cursor, table.l3().Scan());
  uint64_t inserted = 0;
  while (remaining > 0 && !IsFull(*table.l2())) {
    const size_t wanted = std::min<uint64_t>(batch_keys, remaining);
    HPS_ASSIGN_OR_RETURN(const size_t count,
                         cursor->Next(std::span(keys).first(wanted), view, versions));
    if (count == 0) break;
    HostRows found = view;
    found.row_count = count;
    HPS_ASSIGN_OR_RETURN(const InsertCounts counts,
                         table.l2()->Insert({.keys = std::span(keys).first(count),
                                             .rows = found,
                                             .versions = std::span(versions).first(count)},
                                            epoch));
    inserted += counts.inserted;
    remaining -= count;
  }
  return inserted;
}

}  // namespace hps
