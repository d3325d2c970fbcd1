// Helpers for tests of lossy tiers: stamped rows to insert, and fetches that check the invariants
// of every answer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "testing/fakes/stamped_row.h"
#include "tier/lossy_tier.h"

namespace hps {

inline TableSpec ContractSpec(size_t row_bytes, const std::string& name = "model/table") {
  TableSpec spec;
  spec.name = name;
  // 2-byte elements if the row size is even; tables have no odd sizes.
  spec.dtype = row_bytes % 4 == 0 ? Dtype::kFloat32 : Dtype::kFloat16;
  spec.dim = static_cast<uint32_t>(row_bytes / ElementBytes(spec.dtype));
  return spec;
}

// Rows to insert or update, stamped with the table, their key and their version.
class ContractRows {
 public:
  ContractRows(uint64_t table, std::vector<Key> keys, size_t row_bytes, Version version)
      : keys_(std::move(keys)),
        versions_(keys_.size(), version),
        absent_(keys_.size(), 0),
        row_bytes_(row_bytes),
        bytes_(keys_.size() * row_bytes) {
    for (size_t i = 0; i < keys_.size(); ++i) Stamp(i, table, version);
  }

  void Stamp(size_t i, uint64_t table, Version version) {
    versions_[i] = version;
    StampedRow::Write(table, keys_[i], version, {bytes_.data() + i * row_bytes_, row_bytes_});
  }
  // Also makes the row unreadable: the tier must not read it.
  void SetAbsent(size_t i) {
    absent_[i] = 1;
    std::fill_n(bytes_.begin() + static_cast<ptrdiff_t>(i * row_bytes_), row_bytes_,
                std::byte{0xee});
  }

  RowBatch batch() {
    return {.keys = keys_,
            .rows = {bytes_.data(), keys_.size(), row_bytes_, row_bytes_},
            .versions = versions_,
            .absent = absent_};
  }
  RowBatch batch_without_extras() {
    return {.keys = keys_, .rows = {bytes_.data(), keys_.size(), row_bytes_, row_bytes_}};
  }
  const std::vector<Key>& keys() const { return keys_; }

 private:
  const std::vector<Key> keys_;
  std::vector<Version> versions_;
  std::vector<uint8_t> absent_;
  const size_t row_bytes_;
  std::vector<std::byte> bytes_;
};

// The answer to one fetch, in rows with gaps between them, so that a write past a row is detected.
class ContractAnswer {
 public:
  ContractAnswer(std::vector<Key> keys, size_t row_bytes, bool with_versions = true)
      : keys_(std::move(keys)),
        row_bytes_(row_bytes),
        stride_bytes_(row_bytes + kGapBytes),
        bytes_(keys_.size() * stride_bytes_ + kGapBytes, kUntouched),
        outcomes_(keys_.size(), FetchOutcome::kLost),
        versions_(with_versions ? keys_.size() : 0, kNoVersion) {}

  FetchBatch batch() {
    return {.keys = keys_,
            .rows = {bytes_.data(), keys_.size(), row_bytes_, stride_bytes_},
            .outcomes = outcomes_,
            .versions = versions_};
  }
  void Take(const absl::StatusOr<FetchCounts>& counts) {
    status_ = counts.status();
    if (counts.ok()) CheckShape(*counts);
  }

  const absl::Status& status() const { return status_; }
  FetchOutcome outcome(size_t i) const { return outcomes_[i]; }
  Version version(size_t i) const { return versions_[i]; }
  std::span<const std::byte> row(size_t i) const {
    return {bytes_.data() + i * stride_bytes_, row_bytes_};
  }
  bool IsRowOf(size_t i, uint64_t table, Version version) const {
    return outcomes_[i] == FetchOutcome::kHit &&
           StampedRow::Matches(table, keys_[i], version, row(i)) &&
           (versions_.empty() || versions_[i] == version);
  }
  size_t CountOf(FetchOutcome outcome) const {
    return static_cast<size_t>(std::count(outcomes_.begin(), outcomes_.end(), outcome));
  }

 private:
  static constexpr size_t kGapBytes = 5;
  static constexpr std::byte kUntouched{0xcd};
  static constexpr Version kNoVersion = std::numeric_limits<Version>::max();

  // The invariants of every answer.
  void CheckShape(const FetchCounts& counts) const {
    EXPECT_EQ(counts.hits, CountOf(FetchOutcome::kHit));
    EXPECT_EQ(counts.misses, CountOf(FetchOutcome::kMiss));
    EXPECT_EQ(counts.absent, CountOf(FetchOutcome::kAbsent));
    EXPECT_EQ(counts.hits + counts.misses + counts.absent + counts.lost, keys_.size());
    for (size_t i = 0; i < keys_.size(); ++i) {
      const bool hit = outcomes_[i] == FetchOutcome::kHit;
      const size_t begin = i * stride_bytes_ + (hit ? row_bytes_ : 0);
      for (size_t b = begin; b < (i + 1) * stride_bytes_; ++b)
        ASSERT_EQ(bytes_[b], kUntouched) << "byte " << b - i * stride_bytes_ << " of row " << i;
      if (!hit && !versions_.empty()) {
        EXPECT_EQ(versions_[i], kNoVersion);
      }
    }
  }

  const std::vector<Key> keys_;
  const size_t row_bytes_;
  const size_t stride_bytes_;
  std::vector<std::byte> bytes_;
  std::vector<FetchOutcome> outcomes_;
  std::vector<Version> versions_;
  absl::Status status_;
};

// A fetch of one table.
class ContractFetch final : public ContractAnswer {
 public:
  ContractFetch(LossyTable& table, std::vector<Key> keys, size_t row_bytes,
                bool with_versions = true)
      : ContractAnswer(std::move(keys), row_bytes, with_versions) {
    Take(table.Fetch(batch(), kNoDeadline));
  }
};

}  // namespace hps
