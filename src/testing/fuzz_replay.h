// What the replay tests of fuzz targets share: mutants of valid input, the same in each run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace hps {

// One to four changes of bytes; some put one of `pieces` in.
inline std::string Mutated(std::string text, const std::vector<std::string>& pieces,
                           std::mt19937_64& random) {
  const size_t changes = 1 + random() % 4;
  for (size_t i = 0; i < changes && !text.empty(); ++i) {
    const size_t at = random() % text.size();
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 8);
        break;
      case 2:
        text.insert(at, pieces[random() % pieces.size()]);
        break;
      case 3:
        text.resize(at);
        break;
      case 4:
        text.insert(at, 1 + random() % 8, static_cast<char>(random()));
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), random() % 40));
    }
  }
  return text;
}

// Calls `target` with each of `seeds`, then with 30,000 mutants of them.
inline void ReplayMutants(const std::function<void(std::span<const std::byte>)>& target,
                          const std::vector<std::string>& seeds,
                          const std::vector<std::string>& pieces, uint64_t random_seed) {
  std::mt19937_64 random(random_seed);
  for (const std::string& seed : seeds) target(AsBytes(std::string_view(seed)));
  for (int i = 0; i < 30'000; ++i) {
    const std::string text = Mutated(seeds[random() % seeds.size()], pieces, random);
    target(AsBytes(std::string_view(text)));
  }
}

}  // namespace hps
