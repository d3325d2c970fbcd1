// A count to which all cores add without sharing a cache line.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hps {

// Thread-safe. Takes 4 KiB.
class ShardedCounter {
 public:
  // `shard` is any number; callers that run at the same time use different ones.
  void Add(size_t shard, uint64_t count) {
    shards_[shard % kShards].count.fetch_add(count, std::memory_order_relaxed);
  }

  // Reads every shard; additions that are under way may be missing.
  uint64_t Sum() const {
    uint64_t sum = 0;
    for (const Shard& shard : shards_) sum += shard.count.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr size_t kShards = 64;
  struct alignas(64) Shard {
    std::atomic<uint64_t> count{0};
  };

  std::array<Shard, kShards> shards_;
};

}  // namespace hps
