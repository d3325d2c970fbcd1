// How often a test tries: less often in a sanitizer's build, more often for a release.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace hps {

inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Of `count` trials, those that HPS_TEST_TRIALS_PERCENT leaves, at least one: with a sanitizer, a
// trial costs many times as much.
inline uint64_t Trials(uint64_t count) {
  return std::max<uint64_t>(1, count * FromEnvironment("HPS_TEST_TRIALS_PERCENT", 100) / 100);
}

}  // namespace hps
