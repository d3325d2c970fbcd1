// When requests arrive: a Poisson process, so that they come in bursts and gaps, whatever the
// server does.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>

namespace hps::bench {

class PoissonArrivals {
 public:
  // For `seconds`; the same arrivals for the same seed. REQUIRES: per_second > 0.
  PoissonArrivals(double per_second, double seconds, uint64_t seed);

  // The next arrival, from the start on, never earlier than the last one. None after the end.
  std::optional<std::chrono::nanoseconds> Next();

 private:
  std::mt19937_64 random_;
  std::exponential_distribution<double> gap_seconds_;
  const double seconds_;
  double next_seconds_ = 0;
};

}  // namespace hps::bench
