#include "l3_rocksdb/changed_keys.h"

#include <new>

#include "base/hash.h"

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

bool ChangedKeys::SegmentContains(size_t segment, const Place& place) const {
  const std::atomic<uint64_t>* const block =
      segments_[segment].get() + kBlockWords * HashToRange(place.block_hash, BlockCount(segment));
  for (size_t word = 0; word < kBlockWords; ++word) {
    const uint64_t bit = BitOf(place.bit_hash, word);
    if ((block[word].load(std::memory_order_relaxed) & bit) == 0) return false;
  }
  return true;
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

void ChangedKeys::Add(std::span<const Key> keys) {
  MutexLock lock(mutex_);
  if (has_all()) added_count_.fetch_add(keys.size(), std::memory_order_relaxed);
  for (const Key key : keys) {
    if (MayContain(key)) continue;  // so that keys that change often take no more room
    const size_t count = segment_count_.load(std::memory_order_relaxed);
    const bool is_full = count == 0 || keys_in_last_ == KeyCapacity(count - 1);
    if (is_full && !MakeSegment(count)) return AddAll();
    AddTo(segment_count_.load(std::memory_order_relaxed) - 1, PlaceOf(key));
    ++keys_in_last_;
    added_count_.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace hps
