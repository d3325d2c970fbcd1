// One table of a simulated node: its levels, their faults, and what was ever written to it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "serving/live_table.h"
#include "testing/fakes/stamped_row.h"
#include "testing/faults/tier_faults.h"
#include "tests/simulation/defects.h"
#include "tests/simulation/history.h"

namespace hps {

// For one thread. `served` must die before the faults.
struct SimulatedTable {
  SimulatedTable(uint64_t number, std::vector<std::byte> default_row, Executor* executor)
      : history(number, std::move(default_row)),
        l2_faults{TierFaults(executor), TierFaults(executor)},
        l3_faults(executor) {}

  size_t row_bytes() const { return history.default_row().size(); }
  // The first version of the incarnation that is served; later ones count up from it, so that a
  // version tells its incarnation.
  Version first_version() const { return VersionOfImport(incarnation); }

  static constexpr Version VersionOfImport(Incarnation number) { return number << 32; }
  static constexpr Incarnation ImportOf(Version version) { return version >> 32; }

  TableHistory history;
  std::vector<Key> keys;      // every one that is ever asked for or written, ascending
  std::vector<Key> imported;  // those that the incarnation began with
  Incarnation incarnation = 0;
  std::array<TierFaults, kL2PartsMax> l2_faults;  // by part
  TierFaults l3_faults;
  std::shared_ptr<DefectContext> context = std::make_shared<DefectContext>();
  std::shared_ptr<LiveTable> served;
};

// Stamped rows as a batch; the object owns what the batch borrows.
class SimulatedBatch {
 public:
  explicit SimulatedBatch(const SimulatedTable& table)
      : number_(table.history.number()), row_bytes_(table.row_bytes()) {}

  void Add(Key key, Version version) {
    keys_.push_back(key);
    versions_.push_back(version);
    rows_.resize(rows_.size() + row_bytes_);
    StampedRow::Write(number_, key, version, std::span(rows_).last(row_bytes_));
  }
  RowBatch batch() {
    return {.keys = keys_,
            .rows = {rows_.data(), keys_.size(), row_bytes_, row_bytes_},
            .versions = versions_};
  }

 private:
  const uint64_t number_;
  const size_t row_bytes_;
  std::vector<Key> keys_;
  std::vector<Version> versions_;
  std::vector<std::byte> rows_;
};

}  // namespace hps
