#include "bench/serve/serve_arrivals.h"

namespace hps::bench {

PoissonArrivals::PoissonArrivals(double per_second, double seconds, uint64_t seed)
    : random_(seed), gap_seconds_(per_second), seconds_(seconds) {}

std::optional<std::chrono::nanoseconds> PoissonArrivals::Next() {
  next_seconds_ += gap_seconds_(random_);
  if (next_seconds_ >= seconds_) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<int64_t>(next_seconds_ * 1e9));
}

}  // namespace hps::bench
