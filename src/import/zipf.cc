#include "import/zipf.h"

#include <algorithm>
#include <cmath>

namespace hps {
namespace {

// Near 0, both quotients are replaced by the first terms of their series.
constexpr double kSmall = 1e-8;

double Log1pOver(double x) { return std::abs(x) > kSmall ? std::log1p(x) / x : 1 - x / 2; }
double Expm1Over(double x) { return std::abs(x) > kSmall ? std::expm1(x) / x : 1 + x / 2; }

}  // namespace

ZipfDistribution::ZipfDistribution(uint64_t count, double alpha)
    : count_(static_cast<double>(count)),
      alpha_(alpha),
      integral_begin_(Integral(1.5) - 1),
      integral_end_(Integral(count_ + 0.5)),
      accepted_distance_(2 - InverseIntegral(Integral(2.5) - Density(2))) {}

uint64_t ZipfDistribution::Sample(RandomStream& random) const {
  while (true) {
    const double y = integral_end_ + random.NextUnit() * (integral_begin_ - integral_end_);
    const double x = InverseIntegral(y);
    const double rank = std::clamp(std::round(x), 1.0, count_);
    if (rank - x <= accepted_distance_ || y >= Integral(rank + 0.5) - Density(rank))
      return static_cast<uint64_t>(rank);
  }
}

// The integral of Density from 1 to x.
double ZipfDistribution::Integral(double x) const {
  const double log_x = std::log(x);
  return Expm1Over((1 - alpha_) * log_x) * log_x;
}

double ZipfDistribution::InverseIntegral(double y) const {
  const double t = std::max(y * (1 - alpha_), -1.0);  // rounding may go below
  return std::exp(Log1pOver(t) * y);
}

double ZipfDistribution::Density(double x) const { return std::exp(-alpha_ * std::log(x)); }

}  // namespace hps
