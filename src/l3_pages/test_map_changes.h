// Changes of a table as a plain map, for tests of merges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "l3_pages/merged_rows.h"
#include "testing/fakes/stamped_row.h"

namespace hps {

// What changed of a map's rows. A version of kDeletion stands for a deletion.
inline constexpr Version kDeletion = UINT64_MAX;
using PlannedChanges = std::map<Key, Version>;

// Hands out a map's changes, `step` of them at a time.
class MapChanges final : public PageChangeCursor {
 public:
  MapChanges(const PlannedChanges& changes, size_t row_bytes, size_t step)
      : row_bytes_(row_bytes), step_(step), next_(changes.begin()), end_(changes.end()) {}

  absl::StatusOr<Changes> Next() override {
    keys_.clear();
    deleted_.clear();
    versions_.clear();
    rows_.assign(step_ * row_bytes_, std::byte{0});
    for (; next_ != end_ && keys_.size() < step_; ++next_) {
      const auto& [key, version] = *next_;
      StampedRow::Write(1, key, version, {&rows_[keys_.size() * row_bytes_], row_bytes_});
      keys_.push_back(key);
      deleted_.push_back(version == kDeletion ? 1 : 0);
      versions_.push_back(version);
    }
    return Changes{
        keys_, deleted_, {rows_.data(), keys_.size(), row_bytes_, row_bytes_}, versions_};
  }

 private:
  const size_t row_bytes_;
  const size_t step_;
  PlannedChanges::const_iterator next_;
  const PlannedChanges::const_iterator end_;
  std::vector<Key> keys_;
  std::vector<uint8_t> deleted_;
  std::vector<Version> versions_;
  std::vector<std::byte> rows_;
};

}  // namespace hps
