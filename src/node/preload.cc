#include "node/preload.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/macros.h"
#include "node/room_in_level1.h"
#include "serving/current_rows.h"

namespace hps {
namespace {

constexpr size_t kBatchKeysMax = 4096;
constexpr size_t kBatchBytes = 4 << 20;
// Longest wait for a device to make room, or for the store to read a batch.
constexpr auto kWaitMax = std::chrono::seconds(10);

Deadline WaitMax() { return DeadlineAfter(RealClock(), kWaitMax); }

// Keys, versions and rows on their way from one level to another.
struct Batch {
  explicit Batch(size_t bytes_of_row)
      : row_bytes(bytes_of_row),
        keys(std::clamp<size_t>(kBatchBytes / row_bytes, 1, kBatchKeysMax)),
        versions(keys.size()),
        rows(keys.size() * row_bytes),
        outcomes(keys.size()) {}

  HostRows View(size_t count) {
    return {
        .data = rows.data(), .row_count = count, .row_bytes = row_bytes, .stride_bytes = row_bytes};
  }
  RowBatch Rows(size_t count, Admission admission) {
    return {.keys = std::span(keys).first(count),
            .rows = View(count),
            .versions = std::span(versions).first(count),
            .admission = admission};
  }

  // Moves the keys that were found to the front, of the first `count`; returns their number.
  size_t KeepHits(size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      if (outcomes[i] != FetchOutcome::kHit) continue;
      keys[kept] = keys[i];
      versions[kept] = versions[i];
      if (kept != i) std::memcpy(&rows[kept * row_bytes], &rows[i * row_bytes], row_bytes);
      ++kept;
    }
    return kept;
  }

  const size_t row_bytes;
  std::vector<Key> keys;
  std::vector<Version> versions;
  std::vector<std::byte> rows;
  std::vector<FetchOutcome> outcomes;
};

// Number of rows of a share of the table.
uint64_t RowsOf(const LiveTable& table, double share) {
  const double row_count = static_cast<double>(table.l3().Info().row_count);
  return static_cast<uint64_t>(std::ceil(row_count * share));
}

// Passes the first `remaining` rows of the table to `insert`, which returns whether there is room
// for more.
template <typename Insert>
absl::Status ScanRows(LiveTable& table, uint64_t remaining, Insert insert) {
  Batch batch(table.row_bytes());
  HPS_ASSIGN_OR_RETURN(const std::unique_ptr<RowCursor> cursor, table.l3().Scan());
  bool has_room = true;
  while (remaining > 0 && has_room) {
    const size_t desired = std::min<uint64_t>(batch.keys.size(), remaining);
    HPS_ASSIGN_OR_RETURN(const size_t count,
                         cursor->Next(std::span(batch.keys).first(desired),
                                      batch.View(batch.keys.size()), batch.versions));
    if (count == 0) break;
    HPS_ASSIGN_OR_RETURN(has_room, insert(batch.Rows(count, Admission::kIfRoom)));
    remaining -= count;
  }
  return absl::OkStatus();
}

// Waits if the device's staging buffer is full.
absl::Status InsertIfAbsent(DeviceCacheTable& l1, const RowBatch& rows, ApplyEpoch epoch) {
  const Deadline deadline = WaitMax();
  for (;;) {
    const absl::Status status = l1.InsertIfAbsent(rows, epoch).status();
    if (!absl::IsResourceExhausted(status) || RealClock().Now() >= deadline) return status;
    HPS_RETURN_IF_ERROR(l1.Flush(deadline));  // other threads may fill the buffer again
  }
}

// Reads the first `count` keys of the batch from levels 2 and 3, and keeps those that were found.
absl::StatusOr<size_t> FetchHits(LiveTable& table, Batch& batch, size_t count) {
  const FetchBatch all = {.keys = std::span(batch.keys).first(count),
                          .rows = batch.View(count),
                          .outcomes = std::span(batch.outcomes).first(count),
                          .versions = std::span(batch.versions).first(count)};
  HPS_RETURN_IF_ERROR(FetchCurrentRows(table, all, WaitMax()));
  return batch.KeepHits(count);
}

}  // namespace

absl::StatusOr<uint64_t> PreloadTable(LiveTable& table, double share,
                                      const std::function<bool()>& go_on) {
  if (table.l2().empty() || share <= 0 || !go_on()) return 0;
  const ApplyEpoch epoch = table.epochs().published();  // before the first row is read
  uint64_t inserted = 0;
  const auto insert = [&](const RowBatch& rows) -> absl::StatusOr<bool> {
    bool has_room = false;
    for (const L2Part& part : table.l2()) {
      HPS_ASSIGN_OR_RETURN(const InsertCounts counts, part.table().Insert(rows, epoch));
      if (&part == &table.l2().front()) inserted += counts.inserted;
      has_room |= counts.dropped < rows.keys.size();
    }
    return has_room && go_on();
  };
  HPS_RETURN_IF_ERROR(ScanRows(table, RowsOf(table, share), insert));
  return inserted;
}

absl::StatusOr<uint64_t> PreloadDeviceTable(LiveTable& table, size_t cache, double share,
                                            const std::function<bool()>& go_on) {
  DeviceCacheTable* const l1 = table.l1(cache);
  const ApplyEpoch epoch = table.epochs().published();
  if (l1 == nullptr || share <= 0 || !go_on() || epoch < table.l1_epoch(cache)) return 0;
  RoomInLevel1 room(l1->Statistics());
  uint64_t sent = 0;
  const auto insert = [&](const RowBatch& rows) -> absl::StatusOr<bool> {
    HPS_RETURN_IF_ERROR(InsertIfAbsent(*l1, rows, epoch));
    sent += rows.keys.size();
    return go_on() && room.IsLeft(l1->Statistics());
  };
  HPS_RETURN_IF_ERROR(ScanRows(table, RowsOf(table, share), insert));
  HPS_RETURN_IF_ERROR(l1->Flush(WaitMax()));
  return sent;
}

absl::StatusOr<uint64_t> FillDeviceTable(LiveTable& table, size_t cache, std::span<const Key> keys,
                                         const std::function<bool()>& go_on) {
  DeviceCacheTable* const l1 = table.l1(cache);
  HPS_CHECK(l1 != nullptr);
  Batch batch(table.row_bytes());
  uint64_t sent = 0;
  for (size_t first = 0; first < keys.size() && go_on(); first += batch.keys.size()) {
    const ApplyEpoch epoch = table.epochs().published();
    const size_t asked = std::min(batch.keys.size(), keys.size() - first);
    std::copy_n(keys.begin() + static_cast<ptrdiff_t>(first), asked, batch.keys.begin());
    HPS_ASSIGN_OR_RETURN(const size_t count, FetchHits(table, batch, asked));
    // Skip rows that were read before an update ended, if the table was attached during it.
    if (count == 0 || epoch < table.l1_epoch(cache) || table.l1_health(cache).quarantined())
      continue;
    HPS_RETURN_IF_ERROR(InsertIfAbsent(*l1, batch.Rows(count, Admission::kAlways), epoch));
    sent += count;
  }
  HPS_RETURN_IF_ERROR(l1->Flush(WaitMax()));
  return sent;
}

}  // namespace hps
