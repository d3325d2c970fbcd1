// The inverse of the standard normal distribution function: M. J. Wichura, "Algorithm AS 241: The
// Percentage Points of the Normal Distribution", Applied Statistics 37 (1988), routine PPND16. Its
// relative error is about 1e-16.
//
// Every machine computes the same bits: everything is in double, with + - * / and square roots
// only, which IEEE 754 rounds in one way. No multiplication and addition in one instruction, and no
// logarithm of the C library, whose last bits differ between its versions.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/macros.h"

namespace hps {

namespace internal {

inline constexpr size_t kInverseNormalTerms = 8;

HPS_HOST_DEVICE inline double Polynomial(const double (&coefficients)[kInverseNormalTerms],
                                         double x) {
  double sum = coefficients[kInverseNormalTerms - 1];
  for (size_t i = kInverseNormalTerms - 1; i > 0; --i) sum = sum * x + coefficients[i - 1];
  return sum;
}

// The numerators and denominators of the regions below; element i belongs to the i-th power.
HPS_HOST_DEVICE inline double MiddleRatio(double x) {
  constexpr double kCoefficients[2][kInverseNormalTerms] = {
      {3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
       1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
       3.3430575583588128105e+4, 2.5090809287301226727e+3},
      {1, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
       2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4,
       5.2264952788528545610e+3}};
  return Polynomial(kCoefficients[0], x) / Polynomial(kCoefficients[1], x);
}
HPS_HOST_DEVICE inline double TailRatio(double x) {
  constexpr double kCoefficients[2][kInverseNormalTerms] = {
      {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
       3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
       2.27238449892691845833e-2, 7.74545014278341407640e-4},
      {1, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
       1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
       1.05075007164441684324e-9}};
  return Polynomial(kCoefficients[0], x) / Polynomial(kCoefficients[1], x);
}
HPS_HOST_DEVICE inline double FarTailRatio(double x) {
  constexpr double kCoefficients[2][kInverseNormalTerms] = {
      {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
       2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
       2.71155556874348757815e-5, 2.01033439929228813265e-7},
      {1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
       7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
       2.04426310338993978564e-15}};
  return Polynomial(kCoefficients[0], x) / Polynomial(kCoefficients[1], x);
}

// x = m * 2^e with m between sqrt(1/2) and sqrt(2): log x = e log 2 + 2 atanh((m - 1) / (m + 1)).
// The series of atanh is cut where its terms no longer count. REQUIRES: x is normal.
HPS_HOST_DEVICE inline double Log(double x) {
  constexpr double kLog2 = 0.693147180559945309417232121458;
  constexpr double kRootOf2 = 1.41421356237309504880168872421;
  constexpr int kMantissaBits = 52;
  constexpr int kBias = 1023;
  constexpr uint64_t kMantissa = (uint64_t{1} << kMantissaBits) - 1;
  constexpr uint64_t kOne = uint64_t{kBias} << kMantissaBits;
  const auto bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> kMantissaBits) - kBias;
  auto mantissa = std::bit_cast<double>((bits & kMantissa) | kOne);
  if (mantissa > kRootOf2) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double ratio = (mantissa - 1) / (mantissa + 1);
  const double square = ratio * ratio;
  double sum = 0;
  for (int odd = 21; odd > 0; odd -= 2) sum = sum * square + 1.0 / odd;
  return exponent * kLog2 + 2 * ratio * sum;
}

}  // namespace internal

// The value that a standard normal variable is below with this probability. Cost: about 20 ns, in
// the tails 40. REQUIRES: 0 <= probability <= 1; 0 and 1 give finite values, below -37 and above
// 37.
HPS_HOST_DEVICE inline double InverseNormal(double probability) {
  const double from_median = probability - 0.5;
  if (std::fabs(from_median) <= 0.425)
    return from_median * internal::MiddleRatio(0.180625 - from_median * from_median);
  const double tail = std::max(std::min(probability, 1 - probability), 0x1p-1000);
  const double root = std::sqrt(-internal::Log(tail));
  const double distance =
      root <= 5 ? internal::TailRatio(root - 1.6) : internal::FarTailRatio(root - 5);
  return from_median < 0 ? -distance : distance;
}

}  // namespace hps
