#include "testing/host_device_cache/slab_table.h"

#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/macros.h"

namespace hps {

absl::StatusOr<SlabTable> SlabTable::Create(size_t slab_count, size_t row_bytes) {
  HPS_CHECK(slab_count >= kSlabsMin && row_bytes > 0);
  std::unique_ptr<Slab[]> slabs(new (std::nothrow) Slab[slab_count]);
  std::unique_ptr<std::byte[]> rows(new (std::nothrow)
                                        std::byte[slab_count * kSlabSlots * row_bytes]);
  if (slabs == nullptr || rows == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("host cache: no memory for a table of ",
                                                     slab_count * SlabBytes(row_bytes), " bytes"));
  }
  return SlabTable(slab_count, row_bytes, std::move(slabs), std::move(rows));
}

SlabTable::SlabTable(size_t slab_count, size_t row_bytes, std::unique_ptr<Slab[]> slabs,
                     std::unique_ptr<std::byte[]> rows)
    : slab_count_(slab_count),
      row_bytes_(row_bytes),
      slabs_(std::move(slabs)),
      rows_(std::move(rows)) {}

SlabTable::Slabset SlabTable::SlabsetOf(Key key) const {
  // The range uses the upper bits, so the halves of one hash make two independent choices.
  const uint64_t hash = HashKey(key, kL1HashSeed);
  Slabset slabset;
  slabset.first = HashToRange(hash, slab_count_);
  slabset.second = HashToRange(hash << 32 | hash >> 32, slab_count_);
  if (slabset.second == slabset.first) slabset.second = (slabset.first + 1) % slab_count_;
  return slabset;
}

std::optional<SlabTable::Place> SlabTable::PlaceIn(size_t slab, Key key) const {
  for (size_t slot = 0; slot < kSlabSlots; ++slot) {
    if (slabs_[slab].IsValid(slot) && slabs_[slab].keys[slot] == key) return Place{slab, slot};
  }
  return std::nullopt;
}

std::optional<SlabTable::Place> SlabTable::FreePlaceIn(size_t slab) const {
  for (size_t slot = 0; slot < kSlabSlots; ++slot) {
    if (!slabs_[slab].IsValid(slot)) return Place{slab, slot};
  }
  return std::nullopt;
}

std::optional<SlabTable::Place> SlabTable::PlaceOf(Key key) const {
  const Slabset slabset = SlabsetOf(key);
  std::optional<Place> place = PlaceIn(slabset.first, key);
  if (!place.has_value() && slabs_[slabset.first].overflowed) place = PlaceIn(slabset.second, key);
  return place;
}

std::byte* SlabTable::Find(Key key) {
  const std::optional<Place> place = PlaceOf(key);
  return place.has_value() ? RowAt(*place) : nullptr;
}

const std::byte* SlabTable::Find(Key key) const {
  const std::optional<Place> place = PlaceOf(key);
  return place.has_value() ? RowAt(*place) : nullptr;
}

const std::byte* SlabTable::FindAndTouch(Key key) {
  const std::optional<Place> place = PlaceOf(key);
  if (!place.has_value()) return nullptr;
  slabs_[place->slab].stamps[place->slot] = ++clock_;
  return RowAt(*place);
}

SlabTable::Inserted SlabTable::Insert(Key key, std::span<const std::byte> row,
                                      const std::function<bool()>& may_evict) {
  HPS_DCHECK(Find(key) == nullptr && row.size() == row_bytes_);
  const Slabset slabset = SlabsetOf(key);
  std::optional<Place> place = FreePlaceIn(slabset.first);
  if (!place.has_value()) place = FreePlaceIn(slabset.second);
  if (!place.has_value()) place = MoveOneOut(slabset.first);
  const bool evicts = !place.has_value();
  if (evicts && !may_evict()) return Inserted::kNo;
  if (evicts) place = LeastRecentlyUsedOf(slabset);

  if (place->slab == slabset.second) slabs_[slabset.first].overflowed = true;
  Slab& slab = slabs_[place->slab];
  slab.valid = static_cast<uint8_t>(slab.valid | 1u << place->slot);
  slab.keys[place->slot] = key;
  slab.stamps[place->slot] = ++clock_;
  std::memcpy(RowAt(*place), row.data(), row_bytes_);
  if (!evicts) ++key_count_;
  return evicts ? Inserted::kByEviction : Inserted::kWithRoom;
}

std::optional<SlabTable::Place> SlabTable::MoveOneOut(size_t slab) {
  for (size_t slot = 0; slot < kSlabSlots; ++slot) {
    const Key resident = slabs_[slab].keys[slot];
    const Slabset slabset = SlabsetOf(resident);
    if (slabset.first != slab || !DumpAllowsMove(slab, slabset.second)) continue;
    const std::optional<Place> target = FreePlaceIn(slabset.second);
    if (!target.has_value()) continue;

    Slab& second = slabs_[slabset.second];
    second.valid = static_cast<uint8_t>(second.valid | 1u << target->slot);
    second.keys[target->slot] = resident;
    second.stamps[target->slot] = slabs_[slab].stamps[slot];
    std::memcpy(RowAt(*target), RowAt({slab, slot}), row_bytes_);
    slabs_[slab].overflowed = true;
    slabs_[slab].valid = static_cast<uint8_t>(slabs_[slab].valid & ~(1u << slot));
    return Place{slab, slot};
  }
  return std::nullopt;
}

SlabTable::Place SlabTable::LeastRecentlyUsedOf(const Slabset& slabset) const {
  Place oldest{slabset.first, 0};
  for (size_t slab : {slabset.first, slabset.second}) {
    for (size_t slot = 0; slot < kSlabSlots; ++slot) {
      if (slabs_[slab].stamps[slot] < slabs_[oldest.slab].stamps[oldest.slot])
        oldest = {slab, slot};
    }
  }
  return oldest;
}

bool SlabTable::Erase(Key key) {
  const std::optional<Place> place = PlaceOf(key);
  if (!place.has_value()) return false;
  Slab& slab = slabs_[place->slab];
  slab.valid = static_cast<uint8_t>(slab.valid & ~(1u << place->slot));
  --key_count_;
  return true;
}

void SlabTable::Clear() {
  for (size_t slab = 0; slab < slab_count_; ++slab) slabs_[slab] = Slab();
  key_count_ = 0;
}

size_t SlabTable::DumpSlab(size_t slab, std::span<Key> out) {
  HPS_DCHECK(slab < slab_count_ && out.size() >= kSlabSlots);
  size_t count = 0;
  for (size_t slot = 0; slot < kSlabSlots; ++slot) {
    if (slabs_[slab].IsValid(slot)) out[count++] = slabs_[slab].keys[slot];
  }
  dumped_slab_count_ = slab + 1;
  return count;
}

}  // namespace hps
