// Which rows a full level lets in.
//
// A level that takes in every row that was missed loses rows that are asked for often to rows that
// are asked for once. So a full level takes in a row only if it was missed before, not long ago,
// and keeps an estimate of that in a small count-min sketch that ages. The idea is TinyLFU
// (G. Einziger, R. Friedman, B. Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM
// Transactions on Storage 13(4), 2017); the sketch is the count-min sketch (G. Cormode,
// S. Muthukrishnan, Journal of Algorithms 55(1), 2005) with the conservative update (C. Estan,
// G. Varghese, SIGCOMM 2002).
//
// Unlike TinyLFU's, the sketch counts misses only, so that a hit costs nothing. How often a held
// row is used is in its stamp, by which the level chooses the row to evict. A key counts as asked
// for often if it is missed twice before the level has missed as many keys as it holds, on average.
// A call asks for each missed key once, so the level is told how often the call wanted it: where
// one call misses more keys than the level holds, nothing would be remembered until the next call.
// In a simulation of one table (Zipf 1.05, 7 % of the rows held) the hit rate was 1.4 points below
// the best possible; with every missed row taken in it was 5.6 points below. Three misses
// within twice the time gave 0.8 points, but adapted more slowly when the keys changed.
//
// The functions are used by kernels, too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "hps/types.h"

namespace hps {

// What an insertion may do where the level has no free place for the row.
enum class Admission : uint8_t {
  kAlways,    // evicts another row
  kFrequent,  // evicts another row if this one was missed before, not long ago
  kIfRoom,    // nothing: the row is dropped
};

// A word of the sketch has 32 counters of two bits. A key has one word, and three counters in it,
// so that counting reads and writes one place.
using FrequencyWord = uint64_t;

// Counts of a key that let its row in.
inline constexpr uint32_t kFrequentCount = 2;

// The upper half of the hash selects the word, the lower bits its counters.
constexpr uint64_t FrequencyHash(Key key) {
  constexpr uint64_t kMultiplier = 0x9fb21c651e98df25;
  uint64_t hash = static_cast<uint64_t>(key) * kMultiplier;
  hash = (hash ^ hash >> 35) * kMultiplier;
  return hash ^ hash >> 28;
}

// REQUIRES: word_count < 2^32.
constexpr uint64_t FrequencyWordOf(uint64_t hash, uint64_t word_count) {
  return ((hash >> 32) * word_count) >> 32;
}

struct FrequencyUpdate {
  FrequencyWord word = 0;  // after the update
  uint32_t count = 0;      // how often the key has been counted, this time included; at most 4
};

// Counts a key in its word.
constexpr FrequencyUpdate CountFrequency(FrequencyWord word, uint64_t hash) {
  constexpr uint64_t kCounterMax = 3;
  const int shifts[] = {static_cast<int>(hash & 31) * 2, static_cast<int>(hash >> 5 & 31) * 2,
                        static_cast<int>(hash >> 10 & 31) * 2};
  uint64_t count = kCounterMax;
  for (const int shift : shifts) {
    const uint64_t counter = word >> shift & kCounterMax;
    count = counter < count ? counter : count;
  }
  if (count < kCounterMax) {
    for (const int shift : shifts) {
      // A counter above the smallest one counts other keys, too.
      if ((word >> shift & kCounterMax) == count) word += uint64_t{1} << shift;
    }
  }
  return {word, static_cast<uint32_t>(count) + 1};
}

// Halves all counters of a word.
constexpr FrequencyWord AgedFrequencies(FrequencyWord word) {
  return word >> 1 & 0x5555555555555555;
}

// The sketch of a level in host memory. For one thread.
class FrequencySketch {
 public:
  // `words` are zero, and outlive the sketch. Each word is aged once in `keys_per_aging` keys that
  // are counted; there should be a word for each two of them. REQUIRES: 0 < words.size() < 2^32,
  // keys_per_aging > 0.
  FrequencySketch(std::span<FrequencyWord> words, uint64_t keys_per_aging)
      : words_(words), keys_per_word_(std::max<uint64_t>(1, keys_per_aging / words.size())) {}

  // Counts a key that was missed `times` times and returns whether it is frequent.
  bool IsFrequent(Key key, uint32_t times = 1) {
    if (counted_++ % keys_per_word_ == 0) {
      words_[oldest_] = AgedFrequencies(words_[oldest_]);
      oldest_ = oldest_ + 1 < words_.size() ? oldest_ + 1 : 0;
    }
    const uint64_t hash = FrequencyHash(key);
    FrequencyWord& word = words_[FrequencyWordOf(hash, words_.size())];
    FrequencyUpdate update;
    for (uint32_t i = 0; i < std::min(times, kFrequentCount); ++i) {
      update = CountFrequency(word, hash);
      word = update.word;
    }
    return update.count >= kFrequentCount;
  }

  uint64_t counted() const { return counted_; }

 private:
  const std::span<FrequencyWord> words_;
  const uint64_t keys_per_word_;
  uint64_t counted_ = 0;
  size_t oldest_ = 0;  // the word that is aged next
};

}  // namespace hps
