// Draws the number of a new incarnation.
#pragma once

#include <random>

#include "hps/types.h"

namespace hps {

// Random, with kIncarnationBits bits, never 0 (0 means none). The commit checks that the number was
// never used before.
inline Incarnation DrawIncarnation() {
  std::random_device random;
  for (;;) {
    const uint64_t bits = (uint64_t{random()} << 32) | random();
    if (const Incarnation drawn = bits >> (64 - kIncarnationBits); drawn != 0) return drawn;
  }
}

}  // namespace hps
