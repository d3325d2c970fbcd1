#include "l3_rocksdb/changed_keys.h"

#include <algorithm>
#include <new>

#include "base/hash.h"
#include "base/macros.h"

namespace hps {
namespace {

constexpr uint64_t kBlockSeed = 0x8f14e45fceea167a;
constexpr uint64_t kBitSeed = 0x45c48cce2e2d7fbd;
constexpr uint64_t kKeysPerBlock = 32;  // 512 bits

// Bit of word `word`: six bits of the hash for each.
uint64_t BitOf(uint64_t hash, size_t word) { return uint64_t{1} << ((hash >> (6 * word)) & 63); }

}  // namespace

ChangedKeys::Place ChangedKeys::PlaceOf(Key key) {
  return {HashKey(key, kBlockSeed), HashKey(key, kBitSeed)};
}

uint64_t ChangedKeys::BlockCount(size_t segment) const {
  return KeyCapacity(segment) / kKeysPerBlock;
}

const std::atomic<uint64_t>* ChangedKeys::BlockOf(size_t segment, const Place& place) const {
  return segments_[segment].get() +
         kBlockWords * HashToRange(place.block_hash, BlockCount(segment));
}

// Of a key that was not added, two words say so most of the time. Looking at one after the other
// would cost more: the processor can't predict the answers.
bool ChangedKeys::SegmentContains(size_t segment, const Place& place) const {
  constexpr size_t kFirstWords = 2;
  const std::atomic<uint64_t>* const block = BlockOf(segment, place);
  uint64_t missing = 0;
  for (size_t word = 0; word < kFirstWords; ++word)
    missing |= BitOf(place.bit_hash, word) & ~block[word].load(std::memory_order_relaxed);
  if (missing != 0) return false;
  for (size_t word = kFirstWords; word < kBlockWords; ++word)
    missing |= BitOf(place.bit_hash, word) & ~block[word].load(std::memory_order_relaxed);
  return missing == 0;
}

void ChangedKeys::MayContain(std::span<const Key> keys, std::span<bool> contained) const {
  HPS_DCHECK(keys.size() <= kChangedKeysAtOnce && contained.size() == keys.size());
  std::fill(contained.begin(), contained.end(), has_all());
  if (has_all()) return;
  std::array<Place, kChangedKeysAtOnce> places;
  for (size_t i = 0; i < keys.size(); ++i) places[i] = PlaceOf(keys[i]);
  for (size_t segment = segment_count_.load(std::memory_order_acquire); segment-- > 0;) {
    for (size_t i = 0; i < keys.size(); ++i) __builtin_prefetch(BlockOf(segment, places[i]));
    for (size_t i = 0; i < keys.size(); ++i)
      contained[i] = contained[i] || SegmentContains(segment, places[i]);
  }
}

bool ChangedKeys::MayContain(Key key) const {
  if (has_all()) return true;
  const Place place = PlaceOf(key);
  // The last one has the most keys.
  for (size_t segment = segment_count_.load(std::memory_order_acquire); segment-- > 0;) {
    if (SegmentContains(segment, place)) return true;
  }
  return false;
}

void ChangedKeys::AddTo(size_t segment, const Place& place) {
  std::atomic<uint64_t>* const block =
      segments_[segment].get() + kBlockWords * HashToRange(place.block_hash, BlockCount(segment));
  for (size_t word = 0; word < kBlockWords; ++word)
    block[word].fetch_or(BitOf(place.bit_hash, word), std::memory_order_relaxed);
}

bool ChangedKeys::MakeSegment(size_t segment) {
  if (segment == kChangedKeysSegments) return false;
  segments_[segment].reset(new (std::nothrow)
                               std::atomic<uint64_t>[kBlockWords * BlockCount(segment)]());
  if (segments_[segment] == nullptr) return false;
  keys_in_last_ = 0;
  segment_count_.store(segment + 1, std::memory_order_release);
  return true;
}

void ChangedKeys::AddAll(uint64_t count) {
  MutexLock lock(mutex_);
  ContainAll();
  if (added_count() < count) added_count_.store(count, std::memory_order_relaxed);
}

void ChangedKeys::Add(std::span<const Key> keys) {
  MutexLock lock(mutex_);
  if (has_all()) added_count_.fetch_add(keys.size(), std::memory_order_relaxed);
  for (const Key key : keys) {
    if (MayContain(key)) continue;  // so that keys that change often take no more room
    const size_t count = segment_count_.load(std::memory_order_relaxed);
    const bool is_full = count == 0 || keys_in_last_ == KeyCapacity(count - 1);
    if (is_full && !MakeSegment(count)) return ContainAll();
    AddTo(segment_count_.load(std::memory_order_relaxed) - 1, PlaceOf(key));
    ++keys_in_last_;
    added_count_.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace hps
