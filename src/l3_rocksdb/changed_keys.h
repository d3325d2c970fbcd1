// The keys that were written to a table since its page files were made: set or deleted. RocksDB has
// records of these keys only, so a lookup asks it only for keys that this filter may contain.
//
// A blocked Bloom filter in segments. A segment has 16 bits for each key that it is made for; when
// it is full, the next one is made for four times as many. So the memory is 2 bytes per key in full
// segments, and at most 2 * kChangedKeysMax. A filter that is full contains every key from then
// on, which costs lookups time and is never wrong. About one key in a thousand is contained without
// having been added.
//
// Thread-safe. Readers take no lock. A writer adds keys before it makes their rows visible, so a
// reader that can see a row finds its key.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/mutex.h"
#include "hps/types.h"

namespace hps {

inline constexpr size_t kChangedKeysSegments = 5;
inline constexpr size_t kChangedKeysAtOnce = 32;
inline constexpr uint64_t kChangedKeysFirstSegment = uint64_t{1} << 16;  // keys
// Of all segments together: 22 million keys, in 43 MiB.
inline constexpr uint64_t kChangedKeysMax = kChangedKeysFirstSegment * (1 + 4 + 16 + 64 + 256);

class ChangedKeys {
 public:
  // `first_segment` keys fit into the first segment: a power of two, from 32 on.
  explicit ChangedKeys(uint64_t first_segment = kChangedKeysFirstSegment)
      : first_segment_(first_segment) {}
  ChangedKeys(const ChangedKeys&) = delete;
  ChangedKeys& operator=(const ChangedKeys&) = delete;

  // True if nothing was added.
  bool empty() const { return segment_count_.load(std::memory_order_acquire) == 0 && !has_all(); }
  // Keys that were added. Those that the filter contained before do not count, unless it contains
  // every key.
  uint64_t added_count() const { return added_count_.load(std::memory_order_relaxed); }
  // True if the filter contains every key.
  bool has_all() const { return has_all_.load(std::memory_order_acquire); }
  // True for every key that was added, and for some others.
  bool MayContain(Key key) const;
  // The same for at most kChangedKeysAtOnce keys, for which it is faster: the memory loads what
  // they need side by side.
  void MayContain(std::span<const Key> keys, std::span<bool> contained) const;

  void Add(std::span<const Key> keys);
  // From now on the filter contains every key. `count`: keys that count as added, if they are more
  // than have been.
  void AddAll(uint64_t count = 0);

 private:
  static constexpr size_t kBlockWords = 8;  // a cache line
  using Words = std::unique_ptr<std::atomic<uint64_t>[]>;

  // Where a key is: its block, and one bit in each word of it.
  struct Place {
    uint64_t block_hash = 0;
    uint64_t bit_hash = 0;
  };
  static Place PlaceOf(Key key);
  uint64_t KeyCapacity(size_t segment) const { return first_segment_ << (2 * segment); }
  uint64_t BlockCount(size_t segment) const;
  const std::atomic<uint64_t>* BlockOf(size_t segment, const Place& place) const;
  bool SegmentContains(size_t segment, const Place& place) const;
  void AddTo(size_t segment, const Place& place);
  void ContainAll() { has_all_.store(true, std::memory_order_release); }
  // False if there is no room for one.
  bool MakeSegment(size_t segment) HPS_REQUIRES(mutex_);

  const uint64_t first_segment_;
  std::atomic<bool> has_all_{false};
  std::atomic<uint64_t> added_count_{0};
  std::atomic<size_t> segment_count_{0};
  // [segment_count_] are set, and then never change.
  std::array<Words, kChangedKeysSegments> segments_;
  Mutex mutex_;
  uint64_t keys_in_last_ HPS_GUARDED_BY(mutex_) = 0;
};

}  // namespace hps
