#include "bench/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace hps::bench {
namespace {

constexpr unsigned kSubBits = 7;
constexpr uint64_t kSubBuckets = uint64_t{1} << kSubBits;
// 2^40 ns are eighteen minutes: whatever is longer counts as that long.
constexpr unsigned kValueBits = 40;
constexpr uint64_t kValueMax = (uint64_t{1} << kValueBits) - 1;

// Values below kSubBuckets have a bucket each; every further power of two has kSubBuckets.
size_t BucketOf(uint64_t value) {
  const uint64_t capped = std::min(value, kValueMax);
  if (capped < kSubBuckets) return capped;
  const auto shift = static_cast<unsigned>(std::bit_width(capped)) - kSubBits - 1;
  return (shift + 1) * kSubBuckets + ((capped >> shift) - kSubBuckets);
}

// The middle of a bucket.
double ValueOf(size_t bucket) {
  if (bucket < kSubBuckets) return static_cast<double>(bucket);
  const size_t shift = bucket / kSubBuckets - 1;
  const double width = std::ldexp(1.0, static_cast<int>(shift));
  return (static_cast<double>(bucket % kSubBuckets + kSubBuckets) + 0.5) * width;
}

uint64_t Nanoseconds(std::chrono::nanoseconds latency) {
  return static_cast<uint64_t>(std::max<int64_t>(latency.count(), 0));
}

}  // namespace

LatencyHistogram::LatencyHistogram() : buckets_(BucketOf(kValueMax) + 1) {}

void LatencyHistogram::Add(std::chrono::nanoseconds latency) {
  ++buckets_[BucketOf(Nanoseconds(latency))];
  ++count_;
}

void LatencyHistogram::Add(const LatencyHistogram& other) {
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
}

double LatencyHistogram::QuantileUs(double quantile) const {
  if (count_ == 0) return 0;
  const auto count = static_cast<double>(count_);
  const auto rank = static_cast<uint64_t>(std::clamp(std::ceil(quantile * count), 1.0, count));
  uint64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) return ValueOf(i) / 1e3;
  }
  return 0;
}

uint64_t LatencyHistogram::CountUpTo(std::chrono::nanoseconds latency) const {
  const size_t last = BucketOf(Nanoseconds(latency));
  uint64_t seen = 0;
  for (size_t i = 0; i <= last; ++i) seen += buckets_[i];
  return seen;
}

std::vector<std::pair<double, double>> LatencyHistogram::Points() const {
  std::vector<std::pair<double, double>> points;
  if (count_ == 0) return points;
  constexpr int kEven = 20;  // steps of 0.05, and then the tail
  for (int i = 0; i < kEven; ++i) {
    const double share = static_cast<double>(i) / kEven;
    points.emplace_back(share, QuantileUs(share));
  }
  for (double rest = 0.04; rest * static_cast<double>(count_) >= 1; rest /= 1.6)
    points.emplace_back(1 - rest, QuantileUs(1 - rest));
  points.emplace_back(1, QuantileUs(1));
  return points;
}

}  // namespace hps::bench
