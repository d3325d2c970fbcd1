// Latencies in constant memory: what a load generator can afford to keep of a million requests.
//
// Buckets are log-linear: 128 of one width for each power of two, so that a value is known to
// within 0.8 %. For one thread; those of several threads are added up.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace hps::bench {

class LatencyHistogram {
 public:
  LatencyHistogram();

  // Below zero counts as zero.
  void Add(std::chrono::nanoseconds latency);
  void Add(const LatencyHistogram& other);

  uint64_t count() const { return count_; }

  // The latency that a share `quantile` (0 to 1) of them is not above (nearest rank), in us: the
  // middle of its bucket, at most 0.4 % off. 0 for none.
  double QuantileUs(double quantile) const;

  // How many are at most so long, up to the width of a bucket.
  uint64_t CountUpTo(std::chrono::nanoseconds latency) const;

  // The distribution as about forty points (share, latency in us) for a plot, closer together
  // towards 1. Empty for no latencies.
  std::vector<std::pair<double, double>> Points() const;

 private:
  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
};

}  // namespace hps::bench
