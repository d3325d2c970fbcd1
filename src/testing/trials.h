// How often a random test or a fault test tries, and from which seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>

namespace hps {

// Prints the seed beside each failure, so that the failure can be repeated.
class SeedPrinter : public testing::EmptyTestEventListener {
 public:
  explicit SeedPrinter(uint64_t seed) : seed_(seed) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::printf("HPS_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed_));
  }

 private:
  const uint64_t seed_;
};

// The one seed of the process: $HPS_TEST_SEED, else `fixed`, else a number that is drawn. A program
// whose counts are too small for its statistics to hold with every seed has a fixed one. To be
// called from a test's own thread.
inline uint64_t TestSeed(std::optional<uint64_t> fixed = std::nullopt) {
  static const uint64_t seed = [&] {
    const char* const given = std::getenv("HPS_TEST_SEED");
    const uint64_t chosen = given != nullptr ? std::strtoull(given, nullptr, 10)
                                             : fixed.value_or(std::random_device{}());
    // GoogleTest owns its listeners.
    testing::UnitTest::GetInstance()->listeners().Append(
        std::make_unique<SeedPrinter>(chosen).release());
    return chosen;
  }();
  return seed;
}

// The part of `count` trials that this run makes, at least three: an eighth, or
// $HPS_TEST_TRIALS_PERCENT of them. `make test-all` makes them all, a release many times as many.
inline uint64_t Trials(uint64_t count) {
  const char* const percent = std::getenv("HPS_TEST_TRIALS_PERCENT");
  const uint64_t share =
      percent == nullptr ? count / 8 : count * std::strtoull(percent, nullptr, 10) / 100;
  return std::max<uint64_t>(3, share);
}

}  // namespace hps
