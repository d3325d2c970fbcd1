#include "update/freshness.h"

#include <algorithm>
#include <bit>

#include "base/unix_time.h"

namespace hps {

void Freshness::Add(std::span<const int64_t> publish_times_us) {
  const int64_t now_us = UnixMicroseconds();
  for (const int64_t published_us : publish_times_us) {
    if (published_us <= 0) continue;
    const auto age_us = static_cast<uint64_t>(std::max<int64_t>(now_us - published_us, 0));
    const uint64_t age_ms = (age_us + 999) / 1000;
    const auto bucket = static_cast<size_t>(age_ms <= 1 ? 0 : std::bit_width(age_ms - 1));
    counts_[std::min(bucket, counts_.size() - 1)].fetch_add(1, std::memory_order_relaxed);
    sum_us_.fetch_add(age_us, std::memory_order_relaxed);
  }
}

FreshnessHistogram Freshness::histogram() const {
  FreshnessHistogram histogram;
  for (size_t i = 0; i < counts_.size(); ++i)
    histogram.counts[i] = counts_[i].load(std::memory_order_relaxed);
  histogram.seconds_sum = static_cast<double>(sum_us_.load(std::memory_order_relaxed)) * 1e-6;
  return histogram;
}

}  // namespace hps
