#include "query/unique_counter.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <random>

#include "base/hash.h"
#include "base/macros.h"

namespace hps {
namespace {

size_t PlacesFor(size_t key_count) { return std::bit_ceil(2 * std::max<size_t>(key_count, 1)); }

uint64_t DrawSeed() {
  try {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  } catch (const std::exception&) {
    return kCounterHashSeed;  // a machine without randomness counts all the same
  }
}

}  // namespace

UniqueCounter::UniqueCounter(size_t keys_max)
    : seed_(DrawSeed()),
      places_(new Key[PlacesFor(keys_max)]),
      taken_(new uint8_t[PlacesFor(keys_max)]) {}

void UniqueCounter::Begin(size_t key_count) {
  place_count_ = PlacesFor(key_count);
  std::fill_n(taken_.get(), place_count_, uint8_t{0});
  count_ = 0;
}

void UniqueCounter::Add(std::span<const Key> keys) {
  for (const Key key : keys) {
    size_t place = HashKey(key, seed_) & (place_count_ - 1);
    while (taken_[place] != 0 && places_[place] != key) place = (place + 1) & (place_count_ - 1);
    count_ += taken_[place] == 0 ? 1 : 0;
    taken_[place] = 1;
    places_[place] = key;
  }
  HPS_DCHECK(count_ <= place_count_ / 2);
}

}  // namespace hps
