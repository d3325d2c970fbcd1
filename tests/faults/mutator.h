// Files gone wrong, by seed: bits flipped, bytes replaced, pieces cut, doubled, moved or inserted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace hps {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // Changes `bytes` one to three times. Half of the changes are within the first `head_bytes`,
  // where formats keep their headers. `words` are pieces that the format knows.
  std::string Mutate(std::string bytes, size_t head_bytes,
                     const std::vector<std::string>& words = {}) {
    for (uint64_t changes = 1 + Below(3); changes > 0; --changes) Change(bytes, head_bytes, words);
    return bytes;
  }

  uint64_t Below(uint64_t bound) { return random_() % bound; }

 private:
  size_t Place(const std::string& bytes, size_t head_bytes) {
    if (bytes.empty()) return 0;
    const size_t head = std::min(head_bytes, bytes.size());
    return head > 0 && Below(2) == 0 ? Below(head) : Below(bytes.size());
  }

  void Change(std::string& bytes, size_t head_bytes, const std::vector<std::string>& words) {
    const size_t place = Place(bytes, head_bytes);
    const size_t length =
        std::min<size_t>(1 + Below(Below(4) == 0 ? 256 : 8), bytes.size() - place);
    switch (Below(words.empty() ? 8 : 9)) {
      case 0:
      case 1:
        if (!bytes.empty()) bytes[place] = static_cast<char>(bytes[place] ^ (1 << Below(8)));
        return;
      case 2: {
        constexpr std::string_view kTelling(
            "\0\xff\x7f\x80"
            "09-+.,:;'\"[](){}=\n\\ eE",
            26);
        if (!bytes.empty()) bytes[place] = kTelling[Below(kTelling.size())];
        return;
      }
      case 3:
        bytes.erase(place, length);
        return;
      case 4:
        bytes.insert(place, bytes.substr(place, length));
        return;
      case 5:
        bytes.resize(place);
        return;
      case 6: {  // a number larger than anything
        const std::string huge =
            Below(2) == 0 ? std::string(8, static_cast<char>(0xff)) : "18446744073709551615";
        bytes.replace(place, std::min(length, huge.size()), huge);
        return;
      }
      case 7: {  // one piece over another
        const size_t from = Place(bytes, head_bytes);
        bytes.replace(place, length, bytes.substr(from, length));
        return;
      }
      default:
        bytes.insert(place, words[Below(words.size())]);
        return;
    }
  }

  std::mt19937_64 random_;
};

}  // namespace hps
