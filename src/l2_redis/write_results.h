// What becomes of writes to Redis: the answers of the servers, and a table's counters. For
// RedisTable and SharedRedisTable.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "hps/statistics.h"
#include "l2_redis/redis_batch.h"
#include "tier/lossy_tier.h"

namespace hps {

// Takes answers that are one number each, -1 for a change that was lost, and notes the requests
// that were refused.
class RedisCountSink final : public RequestSink {
 public:
  bool OnArray(size_t, size_t) override { return false; }
  bool OnValue(size_t request, size_t, const ReplyValue& value) override {
    if (value.type != ReplyType::kInteger || value.integer < -1) return false;
    if (value.integer < 0) {
      lost_changes_.push_back(request);
    } else {
      sum_ += static_cast<uint64_t>(value.integer);
    }
    return true;
  }
  void OnRefused(size_t request, size_t, RedisError error) override {
    (error == RedisError::kNoScript ? unknown_script_ : no_room_).push_back(request);
  }

  uint64_t sum() const { return sum_; }
  bool IsMade(size_t request) const {
    return std::ranges::count(unknown_script_, request) + std::ranges::count(no_room_, request) +
               std::ranges::count(lost_changes_, request) ==
           0;
  }
  const std::vector<size_t>& lost_changes() const { return lost_changes_; }
  const std::vector<size_t>& no_room() const { return no_room_; }
  std::vector<size_t> TakeNoRoom() { return std::exchange(no_room_, {}); }
  // Those to be made again with the text of the script, in ascending order; forgets them.
  std::vector<size_t> TakeUnknownScript() {
    std::sort(unknown_script_.begin(), unknown_script_.end());
    return std::exchange(unknown_script_, {});
  }

 private:
  uint64_t sum_ = 0;
  std::vector<size_t> unknown_script_;
  std::vector<size_t> no_room_;
  std::vector<size_t> lost_changes_;
};

// Thread-safe.
class RedisTableCounters {
 public:
  void Note(const InsertCounts& counts) {
    insertions_.fetch_add(counts.inserted, std::memory_order_relaxed);
    refused_.fetch_add(counts.refused, std::memory_order_relaxed);
    dropped_.fetch_add(counts.dropped, std::memory_order_relaxed);
  }
  void NoteUpdates(uint64_t count) { updates_.fetch_add(count, std::memory_order_relaxed); }

  // Of rows that Redis evicted nothing is known: entries and bytes are 0.
  LevelStatistics Statistics() const {
    LevelStatistics statistics;
    statistics.insertions = insertions_.load(std::memory_order_relaxed);
    statistics.updates = updates_.load(std::memory_order_relaxed);
    statistics.refused = refused_.load(std::memory_order_relaxed);
    statistics.dropped = dropped_.load(std::memory_order_relaxed);
    return statistics;
  }

 private:
  std::atomic<uint64_t> insertions_{0};
  std::atomic<uint64_t> updates_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace hps
