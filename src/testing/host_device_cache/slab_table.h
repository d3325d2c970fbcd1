// The data model of level 1 for one table: slots in slabs of seven, two slabs per key.
//
// A key's slabset is the two slabs that its hashes select. It lives in its first slab, or else in
// its second one, and then the overflow bit of the first is set. An insertion takes a free slot of
// the first slab, then of the second; then it moves a resident of the first slab to a free slot of
// that resident's own second slab; finally it evicts the least recently used key of the slabset, if
// it may.
// Valid bits decide occupancy, so every key value is legal. Rows are in a plain array, row `slot`
// at slot x row bytes.
//
// This is the oracle for the kernels: it defines the permitted answers. Where a device packs a
// lock, a version and 4-bit stamps into the header, this model has its owner's mutex and exact
// stamps.
//
// Not thread-safe: the owner serializes all calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "hps/types.h"

namespace hps {

class SlabTable {
 public:
  static constexpr size_t kSlabSlots = 7;
  static constexpr size_t kSlabsMin = 2;  // one slabset

  // Makes an empty table. REQUIRES: slab_count >= kSlabsMin, row_bytes > 0. Errors:
  // RESOURCE_EXHAUSTED if the memory can't be allocated (says how many bytes).
  static absl::StatusOr<SlabTable> Create(size_t slab_count, size_t row_bytes);

  // Memory of one slab: its header, keys and rows.
  static uint64_t SlabBytes(size_t row_bytes) { return sizeof(Slab) + kSlabSlots * row_bytes; }

  size_t slab_count() const { return slab_count_; }
  size_t row_bytes() const { return row_bytes_; }
  size_t key_count() const { return key_count_; }

  // The row of a held key, otherwise nullptr. Valid until the next change.
  std::byte* Find(Key key);
  const std::byte* Find(Key key) const;
  // As Find; also makes the key the most recently used one of its slabset.
  const std::byte* FindAndTouch(Key key);

  enum class Inserted { kNo, kWithRoom, kByEviction };

  // Inserts a key. REQUIRES: it is not held. `may_evict` is called if there is no room, and returns
  // whether another key may be evicted.
  Inserted Insert(
      Key key, std::span<const std::byte> row,
      const std::function<bool()>& may_evict = [] { return true; });

  // Returns whether the key was held.
  bool Erase(Key key);
  void Clear();

  // Copies the keys of one slab and returns their number. Also tells the table the progress of a
  // dump: until EndDump no key moves between the slabs up to `slab` and those after it, so that a
  // dump of the slabs in order meets every key that stays exactly once. REQUIRES: slab <
  // slab_count(), out.size() >= kSlabSlots.
  size_t DumpSlab(size_t slab, std::span<Key> out);
  void EndDump() { dumped_slab_count_ = 0; }

 private:
  struct Slab {
    uint8_t valid = 0;        // bit i: slot i holds a key
    bool overflowed = false;  // a key whose first slab this is lives in its second one
    std::array<uint64_t, kSlabSlots> stamps{};
    std::array<Key, kSlabSlots> keys{};

    bool IsValid(size_t slot) const { return (valid >> slot & 1) != 0; }
  };
  struct Place {
    size_t slab = 0;
    size_t slot = 0;
  };
  struct Slabset {
    size_t first = 0;
    size_t second = 0;
  };

  SlabTable(size_t slab_count, size_t row_bytes, std::unique_ptr<Slab[]> slabs,
            std::unique_ptr<std::byte[]> rows);

  Slabset SlabsetOf(Key key) const;
  std::optional<Place> PlaceOf(Key key) const;
  std::optional<Place> PlaceIn(size_t slab, Key key) const;
  std::optional<Place> FreePlaceIn(size_t slab) const;
  // Moves a resident of its first slab `slab` to its second one; returns the freed slot.
  std::optional<Place> MoveOneOut(size_t slab);
  Place LeastRecentlyUsedOf(const Slabset& slabset) const;
  bool DumpAllowsMove(size_t from, size_t to) const {
    return (from < dumped_slab_count_) == (to < dumped_slab_count_);
  }
  std::byte* RowAt(const Place& place) const {
    return rows_.get() + (place.slab * kSlabSlots + place.slot) * row_bytes_;
  }

  size_t slab_count_;
  size_t row_bytes_;
  std::unique_ptr<Slab[]> slabs_;
  std::unique_ptr<std::byte[]> rows_;
  size_t key_count_ = 0;
  uint64_t clock_ = 0;  // counts touches; a stamp is its value at the last touch
  size_t dumped_slab_count_ = 0;
};

}  // namespace hps
