// The tables of one model at one switch: what one call sees, at every level, from start to end.
//
// How a snapshot lives: ModelState::Publish builds it from served tables and publishes it with one
// pointer; a call reads that pointer under an epoch guard (ModelState::Guard); work that outlives
// the call, such as a late fetch or a promotion, pins the snapshot instead (SnapshotPin, taken
// while the guard is held: a guard can't be handed over, because a reclaimer that walks the guards
// might see neither the old nor the new one). After the next switch, when the guards of that time
// have left and no pin is left, an executor task frees it.
//
// Immutable, but for the pin count. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "query/snapshot/served_table.h"

namespace hps {

class ModelSnapshot {
 public:
  // `by_slot` = the same tables by the model's slot numbers (null: not in this snapshot).
  ModelSnapshot(std::vector<std::shared_ptr<ServedTable>> tables, std::vector<ServedTable*> by_slot,
                uint64_t number, bool unloaded)
      : tables_(std::move(tables)),
        by_slot_(std::move(by_slot)),
        number_(number),
        unloaded_(unloaded) {}

  ModelSnapshot(const ModelSnapshot&) = delete;
  ModelSnapshot& operator=(const ModelSnapshot&) = delete;

  // In declared order.
  std::span<const std::shared_ptr<ServedTable>> tables() const { return tables_; }

  // The table in a slot; null when it has been dropped or did not exist yet. A slot belongs to one
  // table name for the life of its ModelState.
  ServedTable* table(size_t slot) const {
    return slot < by_slot_.size() ? by_slot_[slot] : nullptr;
  }

  // The number of the switch that brought it, from 1; 0 = nothing has been published yet.
  uint64_t number() const { return number_; }

  // There are no tables because the model was unloaded, not because they were dropped.
  bool unloaded() const { return unloaded_; }

 private:
  friend class ModelState;
  friend class SnapshotPin;

  const std::vector<std::shared_ptr<ServedTable>> tables_;
  const std::vector<ServedTable*> by_slot_;
  const uint64_t number_;
  const bool unloaded_;
  mutable std::atomic<uint64_t> pins_{0};
};

}  // namespace hps
