// A level 1 without a device: it takes rows into its staging, as a device's cache does, and drops
// them. With it the host's part of a refresh is measured alone.
//
// Thread-safe as DeviceCacheTable. Holds the keys 0 to `key_count` - 1.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <span>

#include "base/bytes.h"
#include "base/limits.h"
#include "tier/device_cache.h"

namespace hps::bench {

class StagingTable final : public DeviceCacheTable {
 public:
  static constexpr size_t kPieces = 8;

  // REQUIRES: row_bytes is a multiple of 64.
  StagingTable(size_t row_bytes, uint64_t key_count)
      : row_bytes_(row_bytes),
        key_count_(key_count),
        piece_bytes_(RoundUp(UpdateFromKeysMax(row_bytes) * (sizeof(Key) + row_bytes), 64)),
        memory_(static_cast<std::byte*>(std::aligned_alloc(64, kPieces * piece_bytes_))) {
    std::fill_n(memory_.get(), kPieces * piece_bytes_, std::byte{1});
  }

  size_t row_bytes() const override { return row_bytes_; }
  // The staging, in pieces of this size, which are used in turn.
  std::byte* piece(size_t i) const { return memory_.get() + i % kPieces * piece_bytes_; }

  absl::Status UpdateFrom(size_t keys_max, const FillUpdate& fill, Deadline) override {
    std::byte* const rows = piece(next_.fetch_add(1, std::memory_order_relaxed));
    std::byte* const keys = rows + UpdateFromKeysMax(row_bytes_) * row_bytes_;
    return fill({static_cast<Key*>(static_cast<void*>(keys)), keys_max},
                {.data = rows,
                 .row_count = keys_max,
                 .row_bytes = row_bytes_,
                 .stride_bytes = row_bytes_})
        .status();
  }
  absl::StatusOr<size_t> Dump(uint64_t* cursor, std::span<Key> out, Deadline) override {
    const size_t count = std::min<uint64_t>(out.size(), key_count_ - *cursor);
    std::iota(out.begin(), out.begin() + static_cast<ptrdiff_t>(count), static_cast<Key>(*cursor));
    *cursor += count;
    return count;
  }
  absl::StatusOr<uint64_t> InsertIfAbsent(const RowBatch&, ApplyEpoch) override {
    return uint64_t{0};
  }
  absl::Status Update(const RowBatch&, Deadline) override { return absl::OkStatus(); }
  absl::Status Erase(std::span<const Key>, Deadline) override { return absl::OkStatus(); }
  absl::Status RaiseWatermarks(std::span<const Key>, ApplyEpoch, Deadline) override {
    return absl::OkStatus();
  }
  absl::Status Clear() override { return absl::OkStatus(); }
  absl::Status Flush(Deadline) override { return absl::OkStatus(); }
  LevelStatistics Statistics() const override { return {.entries = key_count_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  const size_t row_bytes_;
  const uint64_t key_count_;
  const size_t piece_bytes_;
  const std::unique_ptr<std::byte, Free> memory_;
  std::atomic<size_t> next_{0};
};

}  // namespace hps::bench
