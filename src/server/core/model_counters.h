// What the server counts for one model, without locks.
//
// Thread-safe; every addition is a few relaxed atomic operations.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "server/core/server_counters.h"
#include "server/core/server_statistics.h"

namespace hps::server {

class ModelCounters {
 public:
  // A call has ended: with its rows, or with an error after it was admitted.
  void CountCall(bool ok, uint64_t key_count, Duration duration);
  void CountStage(Stage stage, Duration duration) {
    stages_[static_cast<size_t>(stage)].Add(duration);
  }
  // A lookup begins that answers `call_count` calls ...
  void CountBatch(size_t call_count);
  // ... and has taken so long; more than once where some of them are looked up again.
  void AddBatchTime(size_t call_count, Duration duration);

  // Fills in what this object counts.
  void Fill(ModelServerStatistics* statistics) const;

 private:
  using Counter = std::atomic<uint64_t>;
  // Lookups of 2^i calls or more, below 2^(i + 1).
  static constexpr size_t kBatchSizeClasses = 17;
  static size_t SizeClass(size_t call_count);

  Counter requests_ = 0;
  Counter requests_failed_ = 0;
  Counter failed_ns_ = 0;
  Counter keys_ = 0;
  Counter last_request_unix_ms_ = 0;
  std::array<LatencyCounter, kStageCount> stages_;
  std::array<Counter, kBatchSizeClasses> batches_{};
  std::array<Counter, kBatchSizeClasses> batch_lookup_ns_{};
};

}  // namespace hps::server
