// Histograms of how long changes took from their publishing until a level had them.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "hps/update_statistics.h"

namespace hps {

class Freshness {
 public:
  // Messages that were published at these times, in microseconds since 1970, are visible now. A
  // time of 0 is unknown and not counted; one that lies in the future counts as now.
  void Add(std::span<const int64_t> publish_times_us);

  FreshnessHistogram histogram() const;

 private:
  std::array<std::atomic<uint64_t>, FreshnessHistogram::kBuckets> counts_{};
  std::atomic<uint64_t> sum_us_{0};
};

}  // namespace hps
