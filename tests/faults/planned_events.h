// What a writer does to a store, planned by seed, and what the store must hold afterwards.
//
// Event number n (from 1) is the same in every process, so a parent that knows how many events its
// child was acknowledged knows every row that must be there. Two tables are imported together, then
// written to; each import replaces both and empties their positions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tier/durable_tier.h"

namespace hps {

inline constexpr size_t kPlannedTableCount = 2;
inline constexpr std::array<const char*, kPlannedTableCount> kPlannedTables = {"m/a", "m/b"};
inline constexpr uint32_t kPlannedDim = 16;
inline constexpr size_t kPlannedRowBytes = kPlannedDim * 4;
inline constexpr size_t kPlannedKeyCount = 512;  // of each table

struct EventPlan {
  uint64_t seed = 1;
  // Every so-manieth event is an import: 1 = imports only, 0 = only the first one.
  uint64_t import_every = 0;
  // Every so-manieth event drops the second table, and the next one imports both; 0 = never.
  uint64_t drop_every = 0;
  // The store merges changes; a writer waits for the merges that each event causes.
  bool merges = false;

  bool IsDrop(uint64_t event) const {
    return drop_every != 0 && event > 1 && event % drop_every == 0;
  }
  bool IsImport(uint64_t event) const {
    if (event == 1 || (event > 1 && IsDrop(event - 1))) return true;
    return import_every != 0 && event % import_every == 0 && !IsDrop(event);
  }
};

std::vector<TableSpec> PlannedSpecs();
Key PlannedKey(size_t index);

// Fills an import of both tables with the rows of an import event, and commits it.
absl::StatusOr<BulkImport::Result> FillAndCommit(BulkImport& import, const EventPlan& plan,
                                                 uint64_t event);

// Does event `event` to the store. Tables are opened for each event.
absl::Status DoEvent(DurableStore& store, const EventPlan& plan, uint64_t event);

// What the store holds after some number of events.
class PlannedState {
 public:
  explicit PlannedState(const EventPlan& plan) : plan_(plan) {}

  // Goes to the state after `event` events. REQUIRES: event >= events().
  void AdvanceTo(uint64_t event);
  uint64_t events() const { return events_; }

  // Compares every row, version, absent key and position of both tables, by fetching and by
  // scanning. Errors: INTERNAL, which says what differs; what the store itself fails with.
  absl::Status Compare(DurableStore& store) const;

  // The number of rows of a table.
  size_t row_count(size_t table) const { return tables_[table].rows.size(); }
  // Checks one row that was read: right or not in the table.
  bool IsRight(size_t table, Key key, Version version, std::span<const std::byte> row) const;
  bool Has(size_t table, Key key) const { return tables_[table].rows.contains(key); }

 private:
  struct Row {
    uint64_t event = 0;  // that wrote it; what the row is stamped with
    Version version = 0;
  };
  struct Table {
    bool exists = false;
    std::map<Key, Row> rows;
    std::map<uint32_t, StreamPosition> positions;
  };

  void Apply(uint64_t event);
  absl::Status CompareFetch(DurableTable& table, size_t number) const;
  absl::Status CompareScan(DurableTable& table, size_t number) const;

  EventPlan plan_;
  uint64_t events_ = 0;
  std::array<Table, kPlannedTableCount> tables_;
};

}  // namespace hps
