// Random ranks from a power law: the probability of rank r in [1, count] is proportional to
// r^-alpha.
//
// Memory and time are constant for any count. Method: rejection-inversion (W. Hoermann, G.
// Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions",
// 1996). The numbers depend only on the seed, not on the platform's library.
#pragma once

#include <cstdint>

namespace hps {

// A bijection of 64-bit numbers whose output has no visible pattern (the finalizer of splitmix64).
constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A stream of random 64-bit numbers (splitmix64). For one thread.
class RandomStream {
 public:
  explicit RandomStream(uint64_t seed) : state_(seed) {}
  uint64_t Next() { return MixBits(state_ += 0x9e3779b97f4a7c15); }
  // Returns a number in [0, 1).
  double NextUnit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

class ZipfDistribution {
 public:
  // REQUIRES: count >= 1, alpha >= 0 (0 = uniform).
  ZipfDistribution(uint64_t count, double alpha);

  uint64_t Sample(RandomStream& random) const;  // in [1, count]

 private:
  double Integral(double x) const;
  double InverseIntegral(double y) const;
  double Density(double x) const;

  const double count_;
  const double alpha_;
  const double integral_begin_;
  const double integral_end_;
  const double accepted_distance_;
};

}  // namespace hps
