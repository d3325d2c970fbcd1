// One lookup in the host's device cache, with all the buffers that it needs.
//
// Both phases complete at once: Begin has probed when it returns, Finish has scattered. It is the
// oracle because it is simple: misses are sorted (key, position) pairs. CopyAhead copies rows once
// more, as to a device, so rows that are marked `on_device` without CopyAhead are wrong here too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "testing/host_device_cache/host_cache_table.h"
#include "tier/device_cache.h"

namespace hps {

class HostCall final : public DeviceCall {
 public:
  // Return calls `give_back`. `staging` may be empty. Reserves all memory.
  HostCall(size_t keys_max, std::span<std::byte> staging, std::function<void(HostCall*)> give_back);

  // Prepares the call for a lookup of at most `keys_leased` keys.
  void Lease(size_t keys_leased);
  size_t keys_max() const { return keys_max_; }

  absl::Status Begin(std::span<const DeviceCacheQuery> queries, Stream stream) override;
  DeviceMissesSoFar Peek(size_t query) override { return {keys_[query], true}; }
  absl::StatusOr<DeviceMisses> Misses(Deadline deadline) override;
  HostRows Staging(size_t query, size_t row_count) override;
  absl::Status CopyAhead(const HostRows& rows) override;
  absl::Status Finish(std::span<const DeviceRowPiece> pieces) override;
  absl::Status ConvertToFloat32() override;
  absl::Status Wait(Deadline deadline) override;
  LookupCounts counts(size_t query) const override { return counts_[query]; }
  void Return() override { give_back_(this); }

 private:
  struct Query {
    DeviceCacheQuery request;
    const HostCacheTable* table = nullptr;  // null: not cached
  };
  struct Miss {
    Key key = 0;
    size_t position = 0;

    friend auto operator<=>(const Miss&, const Miss&) = default;
  };

  void Check(const DeviceRowPiece& piece) const;
  absl::Status CheckAllAnswered() const;
  void Probe(size_t query);
  // Whether level 2 answers all misses of the query; then it has.
  bool ReadDirectly(size_t query);
  void ForgetDirectAnswers(size_t query);
  void Answer(size_t query, size_t unique, const DeviceRowPiece& piece, size_t row);
  bool IsStaged(const HostRows& rows) const;
  // Row `row` of a piece, as the device reads it.
  const std::byte* RowOf(const DeviceRowPiece& piece, size_t row) const;

  const size_t keys_max_;
  const std::span<std::byte> staging_;
  std::vector<std::byte> device_staging_;  // the device's copy of staging
  const std::function<void(HostCall*)> give_back_;
  size_t keys_leased_ = 0;
  size_t staging_used_bytes_ = 0;
  bool begun_ = false;

  std::vector<Query> queries_;
  std::vector<LookupCounts> counts_;         // [queries]
  std::vector<Miss> misses_;                 // query after query, sorted within each
  std::vector<Key> unique_keys_;             // the same without duplicates
  std::vector<size_t> unique_misses_begin_;  // [unique + 1]: where a unique key's misses begin
  std::vector<uint8_t> answered_;            // [unique]
  std::vector<size_t> begin_;                // [queries + 1]: where a query's unique keys begin
  std::vector<std::span<const Key>> keys_;   // [queries]: its unique keys
  std::vector<uint64_t> positions_;          // [queries]
  std::vector<uint8_t> direct_;              // [queries]
  size_t unanswered_count_ = 0;
};

}  // namespace hps
