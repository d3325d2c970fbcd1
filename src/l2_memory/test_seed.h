// The seed of a random test.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace hps {

// That of $HPS_TEST_SEED, or a new one; printed, so that a failure can be repeated.
inline uint64_t TestSeed() {
  const char* const given = std::getenv("HPS_TEST_SEED");
  const uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace hps
