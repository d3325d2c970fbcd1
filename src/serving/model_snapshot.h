// The tables of one model at one switch: what one lookup sees, at every level, from start to end.
//
// LiveModel::Publish builds a snapshot from live tables and publishes it with one pointer. A lookup
// reads that pointer under an epoch guard (LiveModel::Guard). Work that outlives the lookup, such
// as a late fetch or a promotion, pins the snapshot instead (SnapshotPin). It takes the pin while
// the guard is held; a guard can't be handed over, because a reclaimer that walks the guards might
// see neither the old nor the new one. An executor task frees a replaced snapshot when the guards
// of its time have ended and it has no pin.
//
// Immutable, except for the pin count. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "hps/model_network.h"
#include "serving/live_table.h"

namespace hps {

class ModelSnapshot {
 public:
  struct Parts {
    std::vector<std::shared_ptr<LiveTable>> tables;
    std::vector<LiveTable*> by_slot;  // the same by the model's slot numbers; null: not in this one
    uint64_t number = 0;
    uint64_t version = 0;
    bool unloaded = false;
    std::shared_ptr<const ModelNetwork> network{};
  };
  explicit ModelSnapshot(Parts parts)
      : tables_(std::move(parts.tables)),
        by_slot_(std::move(parts.by_slot)),
        number_(parts.number),
        version_(parts.version),
        unloaded_(parts.unloaded),
        network_(std::move(parts.network)) {}

  ModelSnapshot(const ModelSnapshot&) = delete;
  ModelSnapshot& operator=(const ModelSnapshot&) = delete;

  // In declared order.
  std::span<const std::shared_ptr<LiveTable>> tables() const { return tables_; }

  // The table in a slot; null when it has been dropped or did not exist yet. A slot belongs to one
  // table name for the life of its LiveModel.
  LiveTable* table(size_t slot) const { return slot < by_slot_.size() ? by_slot_[slot] : nullptr; }

  // The number of the switch that brought it, from 1; 0 = nothing has been published yet.
  uint64_t number() const { return number_; }

  // The version of the model, as clients see it. It stays the same if only levels were re-created.
  uint64_t version() const { return version_; }

  // The model's dense network; null if it has none.
  const std::shared_ptr<const ModelNetwork>& network() const { return network_; }

  // There are no tables because the model was unloaded, not because they were dropped.
  bool unloaded() const { return unloaded_; }

 private:
  friend class LiveModel;
  friend class SnapshotPin;

  const std::vector<std::shared_ptr<LiveTable>> tables_;
  const std::vector<LiveTable*> by_slot_;
  const uint64_t number_;
  const uint64_t version_;
  const bool unloaded_;
  const std::shared_ptr<const ModelNetwork> network_;
  mutable std::atomic<uint64_t> pins_{0};
};

}  // namespace hps
