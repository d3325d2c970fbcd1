// What one table has answered since its model was loaded, summed over all sessions and switches.
//
// Sharded: each session adds once per call and table to a cache line that few others use, and
// nothing is counted per key. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/limits.h"
#include "hps/lookup_session.h"
#include "serving/error_counter.h"

namespace hps {

class LookupCounters {
 public:
  // `shard` is any number; sessions use their own. `cache` is the session's L1, kCachesMax = none.
  void Add(size_t shard, const LookupCounts& counts, size_t cache = kCachesMax) {
    Shard& sums = shards_[shard % kShards];
    if (cache < kCachesMax) {
      const uint64_t hits = counts[KeyStatus::kHitL1];
      sums.cache_hits[cache].fetch_add(hits, std::memory_order_relaxed);
      sums.cache_misses[cache].fetch_add(counts.total() - hits, std::memory_order_relaxed);
    }
    for (size_t i = 0; i < kKeyStatusCount; ++i) {
      if (counts.by_status[i] != 0)
        sums.by_status[i].fetch_add(counts.by_status[i], std::memory_order_relaxed);
    }
  }

  LookupCounts Sum() const {
    LookupCounts sum;
    for (const Shard& shard : shards_) {
      for (size_t i = 0; i < kKeyStatusCount; ++i)
        sum.by_status[i] += shard.by_status[i].load(std::memory_order_relaxed);
    }
    return sum;
  }

  // Keys that sessions with this L1 asked for, by whether it answered them.
  struct CacheCounts {
    uint64_t hits = 0;
    uint64_t misses = 0;
  };
  CacheCounts SumOf(size_t cache) const {
    CacheCounts sum;
    for (const Shard& shard : shards_) {
      sum.hits += shard.cache_hits[cache].load(std::memory_order_relaxed);
      sum.misses += shard.cache_misses[cache].load(std::memory_order_relaxed);
    }
    return sum;
  }

  // Failed or timed-out operations on the level.
  ErrorCounter& l1_errors() { return l1_errors_; }
  ErrorCounter& l2_errors() { return l2_errors_; }
  const ErrorCounter& l1_errors() const { return l1_errors_; }
  const ErrorCounter& l2_errors() const { return l2_errors_; }

 private:
  static constexpr size_t kShards = 16;
  struct alignas(64) Shard {
    std::array<std::atomic<uint64_t>, kKeyStatusCount> by_status{};
    std::array<std::atomic<uint64_t>, kCachesMax> cache_hits{};
    std::array<std::atomic<uint64_t>, kCachesMax> cache_misses{};
  };

  std::array<Shard, kShards> shards_;
  ErrorCounter l1_errors_;
  ErrorCounter l2_errors_;
};

}  // namespace hps
