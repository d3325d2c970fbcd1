// Holds the records of an update stream back while a limit is reached: of the memory of records
// that exist, and of rows and bytes per second. Counts what was given.
//
// One thread calls everything but Release and the figures, which are for any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/executor.h"
#include "base/rate_limiter.h"
#include "update/kafka_source_options.h"
#include "update/update_message.h"

namespace hps {

class RecordLimits {
 public:
  explicit RecordLimits(const KafkaSourceOptions& options)
      : memory_bytes_max_(options.memory_bytes_max),
        rows_(options.rows_per_second_max, std::chrono::seconds(1)),
        bytes_(options.bytes_per_second_max, std::chrono::seconds(1)) {}
  RecordLimits(const RecordLimits&) = delete;
  RecordLimits& operator=(const RecordLimits&) = delete;

  // Whether a record may pass now; waits for that until `deadline`.
  bool WaitForRoom(Deadline deadline) const {
    while (true) {
      const TimePoint ready = RatesReady();
      const TimePoint now = RealClock().Now();
      const bool has_room = memory_bytes() < memory_bytes_max_;
      if (has_room && ready <= now) return true;
      if (now >= deadline) return false;
      Latch(1).WaitUntil(has_room ? std::min(ready, deadline) : deadline);
    }
  }
  // Whether a rate lets a record pass now.
  bool RatesLetPass() const { return RatesReady() <= RealClock().Now(); }

  // A record has passed. Release says that it does not exist any more.
  void Take(std::span<const std::byte> payload) {
    const TimePoint now = RealClock().Now();
    rows_.Take(PayloadRows(payload), now);
    bytes_.Take(payload.size(), now);
    memory_bytes_.fetch_add(payload.size(), std::memory_order_relaxed);
    records_given_.fetch_add(1, std::memory_order_relaxed);
    bytes_given_.fetch_add(payload.size(), std::memory_order_relaxed);
  }
  void Release(size_t payload_bytes) {
    memory_bytes_.fetch_sub(payload_bytes, std::memory_order_relaxed);
  }

  size_t memory_bytes() const { return memory_bytes_.load(std::memory_order_relaxed); }
  uint64_t records_given() const { return records_given_.load(std::memory_order_relaxed); }
  uint64_t bytes_given() const { return bytes_given_.load(std::memory_order_relaxed); }

 private:
  TimePoint RatesReady() const { return std::max(rows_.ready(), bytes_.ready()); }

  const size_t memory_bytes_max_;
  RateLimiter rows_;
  RateLimiter bytes_;
  std::atomic<size_t> memory_bytes_{0};  // of records that exist
  std::atomic<uint64_t> records_given_{0};
  std::atomic<uint64_t> bytes_given_{0};
};

}  // namespace hps
