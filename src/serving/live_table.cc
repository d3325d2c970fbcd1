#include "serving/live_table.h"

#include <utility>

#include "base/macros.h"
#include "types/row_convert.h"

namespace hps {

LiveTable::LiveTable(Parts parts)
    : spec_(parts.l3->spec()),
      incarnation_(parts.l3->incarnation()),
      hit_rate_threshold_(parts.hit_rate_threshold),
      default_row_(spec_.default_row),
      default_row_float32_(spec_.dim * sizeof(float)),
      l3_(std::move(parts.l3)) {
  HPS_CHECK(parts.l2.size() <= kL2PartsMax);
  HPS_CHECK(hit_rate_threshold_ >= 0.0 && hit_rate_threshold_ <= 1.0);
  for (L2Part::Opened& part : parts.l2) l2_.emplace_back(std::move(part), epochs_);
  default_row_.resize(spec_.row_bytes());  // an empty default row means zeros
  ConvertToFloat32(spec_.dtype, default_row_.data(), spec_.dim, default_row_float32_.data());
  for (CacheSlot& slot : l1_)
    slot.health = std::make_unique<LevelHealth>(epochs_, LevelHealth::Applied::kWhenNoted);
}

SharedTable* LiveTable::shared() const {
  for (const L2Part& part : l2_) {
    if (part.shared() != nullptr) return part.shared();
  }
  return nullptr;
}

void LiveTable::AttachL1(size_t cache, std::unique_ptr<DeviceCacheTable> table, int device) {
  HPS_CHECK(cache < kCachesMax);
  CacheSlot& slot = l1_[cache];
  HPS_CHECK(slot.owned == nullptr);
  slot.owned = std::move(table);
  slot.device = device;
  // The applier begins a change and then looks for the L1 table. This thread publishes the table
  // and then reads the epoch. So either the applier finds the table and raises its watermarks, or
  // the epoch read here includes the change.
  slot.table.store(slot.owned.get(), std::memory_order_seq_cst);
  const ApplyEpoch epoch = epochs_.begun();
  slot.epoch.store(epoch, std::memory_order_seq_cst);
  slot.health->NoteApplied(epoch);  // promotions from before it are refused
}

}  // namespace hps
