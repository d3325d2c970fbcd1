#include "train/inverse_normal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace hps {
namespace {

// The C library's distribution function.
double Probability(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

TEST(InverseNormal, HasTheValuesOfTables) {
  EXPECT_EQ(InverseNormal(0.5), 0);
  EXPECT_NEAR(InverseNormal(0.975), 1.959963984540054, 1e-15);
  EXPECT_NEAR(InverseNormal(0.25), -0.6744897501960817, 1e-15);  // the paper's own check
  EXPECT_NEAR(InverseNormal(0.001), -3.090232306167814, 1e-15);
  EXPECT_NEAR(InverseNormal(1e-20), -9.262340089798408, 1e-14);
}

TEST(InverseNormal, InvertsTheDistributionInEveryRegion) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> exponent(-300, std::log10(0.5));
  for (int i = 0; i < 100'000; ++i) {
    const double wide = std::pow(10, exponent(random));
    const double middle = std::generate_canonical<double, 53>(random) / 2;
    for (const double probability : {wide, middle}) {
      const double value = InverseNormal(probability);
      // The relative error of a tail's probability is that of the value, times its square.
      const double error_max = 1e-15 * (4 + value * value);
      ASSERT_NEAR(Probability(value) / probability, 1, error_max) << probability;
      ASSERT_EQ(InverseNormal(1 - probability), -InverseNormal(1 - (1 - probability)));
    }
  }
}

TEST(InverseNormal, IsFiniteAtTheEnds) {
  EXPECT_LT(InverseNormal(0), -37);
  EXPECT_TRUE(std::isfinite(InverseNormal(0)));
  EXPECT_EQ(InverseNormal(1), -InverseNormal(0));
}

// A machine that gives other bits would begin with other rows.
TEST(InverseNormal, HasTheSameBitsOnEveryMachine) {
  EXPECT_EQ(InverseNormal(0x1p-33), -0x1.95a1198fcf3d4p+2);
  EXPECT_EQ(InverseNormal(0.074), -0x1.72567aa9caedap+0);
  EXPECT_EQ(InverseNormal(0.3), -0x1.0c7e39582c5fap-1);
  EXPECT_EQ(InverseNormal(0.9), 0x1.4813c36e26d33p+0);
  EXPECT_EQ(InverseNormal(1e-300), -0x1.286074064c26ep+5);
}

}  // namespace
}  // namespace hps
