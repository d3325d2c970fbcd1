// Batches of stamped rows, for tests of durable tiers: what a caller writes and reads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "testing/fakes/stamped_row.h"
#include "tier/durable_tier.h"

namespace hps {

// Keys and stamped rows of one table, owned by the caller.
class StampedRows {
 public:
  StampedRows(uint64_t table, size_t row_bytes, std::vector<Key> keys, Version version = 0)
      : keys_(std::move(keys)),
        versions_(keys_.size(), version),
        row_bytes_(row_bytes),
        bytes_(keys_.size() * row_bytes) {
    for (size_t i = 0; i < keys_.size(); ++i)
      StampedRow::Write(table, keys_[i], version, {bytes_.data() + i * row_bytes, row_bytes});
  }
  const std::vector<Key>& keys() const { return keys_; }
  HostRows rows() { return {bytes_.data(), keys_.size(), row_bytes_, row_bytes_}; }
  RowBatch batch() { return {keys_, rows(), versions_, {}}; }

 private:
  std::vector<Key> keys_;
  std::vector<Version> versions_;
  size_t row_bytes_;
  std::vector<std::byte> bytes_;
};

// A fetch with room for its answers, in rows with gaps between them.
struct FetchedRows {
  FetchedRows(DurableTable& table, std::vector<Key> asked, Deadline deadline = kNoDeadline)
      : keys(std::move(asked)),
        row_bytes(table.spec().row_bytes()),
        bytes(keys.size() * (row_bytes + kGapBytes), kUntouched),
        outcomes(keys.size(), FetchOutcome::kMiss),
        versions(keys.size(), 0) {
    const HostRows rows{bytes.data(), keys.size(), row_bytes, row_bytes + kGapBytes};
    counts = table.Fetch({keys, rows, outcomes, versions}, deadline);
  }
  std::span<const std::byte> row(size_t i) const {
    return {bytes.data() + i * (row_bytes + kGapBytes), row_bytes};
  }
  // Checks that neither answer i nor the gaps between rows were written.
  bool untouched(size_t i) const {
    const auto own = row(i);
    return std::all_of(own.begin(), own.end(), [](std::byte b) { return b == kUntouched; });
  }
  bool gap_untouched(size_t i) const {
    const std::byte* gap = row(i).data() + row_bytes;
    return std::all_of(gap, gap + kGapBytes, [](std::byte b) { return b == kUntouched; });
  }

  static constexpr size_t kGapBytes = 8;
  static constexpr std::byte kUntouched{0xa5};
  std::vector<Key> keys;
  size_t row_bytes;
  std::vector<std::byte> bytes;
  std::vector<FetchOutcome> outcomes;
  std::vector<Version> versions;
  absl::StatusOr<FetchCounts> counts;
};

}  // namespace hps
