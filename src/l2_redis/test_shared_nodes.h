// For tests: nodes that share a table, each with a map as its level 3, and the stream that they
// apply.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/macros.h"
#include "testing/contracts/lossy_rows.h"
#include "tier/redis_tier.h"

namespace hps::shared_nodes {

inline constexpr uint64_t kTable = 9;
inline constexpr size_t kRowBytes = 64;
inline constexpr size_t kPartitions = 3;
inline constexpr size_t kKeys = 300;

inline std::vector<Key> AllKeys() {
  std::vector<Key> keys(kKeys);
  for (size_t i = 0; i < kKeys; ++i) keys[i] = static_cast<Key>(i);
  return keys;
}

inline size_t PartitionOf(Key key) { return HashKey(key, kStreamHashSeed) % kPartitions; }

// The stream of a table: one record changes one key.
struct Stream {
  struct Record {
    Key key = 0;
    bool is_delete = false;
  };
  std::array<std::vector<Record>, kPartitions> partitions;

  void Publish(Key key, bool is_delete = false) {
    partitions[PartitionOf(key)].push_back({.key = key, .is_delete = is_delete});
  }
};

// A node: its level 3, which is a map, and the table that it shares with the others.
class Node {
 public:
  // Puts another part before the shared table.
  using AddPart = std::function<std::unique_ptr<LossyTable>(std::unique_ptr<LossyTable>)>;

  Node(const RedisConfig& config, const std::string& import_id, bool writes_changes = true,
       AddPart add_part = nullptr,
       std::function<void(LossyTable& table, ApplyEpoch epoch)> before_check = nullptr)
      : tier_(*MakeRedisTier(config)),
        import_id_(import_id),
        writes_changes_(writes_changes),
        add_part_(std::move(add_part)),
        before_check_(std::move(before_check)) {
    for (const Key key : AllKeys()) rows_[key] = 0;
    Open();
  }

  // As a start of its process does.
  void Open() {
    const TableInfo info = {.spec = ContractSpec(kRowBytes),
                            .incarnation = 1,
                            .positions = positions_,
                            .import_id = import_id_};
    auto opened = tier_.open_shared({info, unordered_hashes_}, writes_changes_);
    HPS_CHECK(opened.ok());
    table_ = std::move(opened->table);
    shared_ = opened->shared;
    if (add_part_ != nullptr) table_ = add_part_(std::move(table_));
  }

  void BeginStream() {
    DurableWrite write;
    for (uint32_t partition = 0; partition < kPartitions; ++partition)
      positions_.push_back({.partition = partition, .generation = 1, .offset = 0});
    write.positions = positions_;
    shared_->BeginChange({}, ++epoch_, positions_);
    shared_->EndChange(write);
  }

  bool Apply(const Stream& stream, size_t partition, size_t count) {
    return Apply(stream, std::vector{partition}, count);
  }
  // Applies at most `count` records of each partition, as one change.
  bool Apply(const Stream& stream, const std::vector<size_t>& partitions, size_t count) {
    std::vector<StreamPosition> positions;
    std::vector<Key> keys;
    std::vector<Version> versions;
    bool is_delete = false;
    for (const size_t partition : partitions) {
      StreamPosition& position = positions_[partition];
      const auto& records = stream.partitions[partition];
      const size_t end = keys.size() + count;
      for (; keys.size() < end && position.offset < records.size(); ++position.offset) {
        const Stream::Record& record = records[position.offset];
        if (!keys.empty() && record.is_delete != is_delete) break;
        is_delete = record.is_delete;
        keys.push_back(record.key);
        versions.push_back(VersionAt(1, position.offset));
      }
      positions.push_back(position);
    }
    if (keys.empty()) return false;
    for (const Key key : keys) {
      if (std::ranges::find(partitions, PartitionOf(key)) == partitions.end())
        unordered_hashes_.push_back(UnorderedHash(key));
    }
    ContractRows rows(kTable, keys, kRowBytes, 0);
    for (size_t i = 0; i < keys.size(); ++i) rows.Stamp(i, kTable, versions[i]);
    DurableWrite write = {.positions = positions};
    if (is_delete) {
      write.deletes = keys;
      write.delete_versions = versions;
    } else {
      write.upserts = rows.batch();
      write.upserts.absent = {};
    }
    ++epoch_;
    EXPECT_TRUE(table_->RaiseWatermarks(keys, epoch_, kNoDeadline).ok());
    shared_->BeginChange(keys, epoch_, write.positions);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (is_delete) {
        rows_.erase(keys[i]);
      } else {
        rows_[keys[i]] = versions[i];
        level3_[static_cast<size_t>(keys[i])] = versions[i];
      }
    }
    shared_->EndChange(write);
    EXPECT_TRUE((is_delete ? table_->Erase(keys) : table_->Update(write.upserts)).ok());
    return true;
  }

  // A promotion, of which the rows are fetched now; Insert may come any time later.
  struct Promotion {
    ApplyEpoch epoch = 0;
    ContractRows rows;
  };
  Promotion Fetched(const std::vector<Key>& keys) const {
    Promotion made = {.epoch = epoch_, .rows = ContractRows(kTable, keys, kRowBytes, 0)};
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto found = rows_.find(keys[i]);
      if (found == rows_.end()) {
        made.rows.SetAbsent(i);
      } else {
        made.rows.Stamp(i, kTable, found->second);
      }
    }
    return made;
  }
  uint64_t Insert(Promotion promotion) {
    const auto counts = table_->Insert(promotion.rows.batch(), promotion.epoch);
    EXPECT_TRUE(counts.ok());
    return counts.ok() ? counts->inserted : 0;
  }
  uint64_t Promote(const std::vector<Key>& keys) { return Insert(Fetched(keys)); }

  // The number of answers; each is what level 3 has.
  size_t Check(const std::vector<Key>& keys) {
    ContractAnswer fetch(keys, kRowBytes);
    if (before_check_ != nullptr) before_check_(*table_, epoch_);
    fetch.Take(table_->Fetch(fetch.batch(), kNoDeadline));
    EXPECT_TRUE(fetch.status().ok());
    size_t answers = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (fetch.outcome(i) == FetchOutcome::kMiss) continue;
      ++answers;
      const auto found = rows_.find(keys[i]);
      if (fetch.outcome(i) == FetchOutcome::kAbsent) {
        EXPECT_TRUE(found == rows_.end()) << "key " << keys[i];
      } else if (found == rows_.end()) {
        ADD_FAILURE() << "key " << keys[i] << " is deleted, answered version " << fetch.version(i);
      } else {
        EXPECT_TRUE(fetch.IsRowOf(i, kTable, found->second))
            << "key " << keys[i] << ": answered version " << fetch.version(i) << ", level 3 has "
            << found->second;
      }
    }
    return answers;
  }

  SharedTable& shared() { return *shared_; }
  LossyTable& table() { return *table_; }
  RemoteLevelStatistics statistics() const { return tier_.statistics(); }
  // What level 3 has of a key that is never deleted; for any thread.
  Version level3(size_t key) const { return level3_[key].load(); }

  // As the owner of a partition does: writes the changes from `begin` to `end` into the level.
  absl::Status WriteShared(const Stream& stream, size_t partition, uint64_t begin, uint64_t end,
                           const std::function<bool()>& ends = nullptr) {
    std::vector<Key> keys;
    std::vector<Version> versions;
    for (uint64_t offset = begin; offset < end; ++offset) {
      keys.push_back(stream.partitions[partition][offset].key);
      versions.push_back(VersionAt(1, offset));
    }
    ContractRows rows(kTable, keys, kRowBytes, 0);
    for (size_t i = 0; i < keys.size(); ++i) rows.Stamp(i, kTable, versions[i]);
    StreamPosition from = {
        .partition = static_cast<uint32_t>(partition), .generation = 1, .offset = begin};
    StreamPosition to = from;
    to.offset = end;
    DurableWrite write = {.upserts = rows.batch(), .positions = {&to, 1}};
    write.upserts.absent = {};
    return shared_->WriteChange({.write = &write, .from = {&from, 1}, .ends = ends});
  }

 private:
  RedisTier tier_;
  const std::string import_id_;
  const bool writes_changes_;
  const AddPart add_part_;
  const std::function<void(LossyTable& table, ApplyEpoch epoch)> before_check_;
  std::unique_ptr<LossyTable> table_;
  SharedTable* shared_ = nullptr;
  std::map<Key, Version> rows_;
  std::vector<StreamPosition> positions_;
  std::vector<uint16_t> unordered_hashes_;
  std::array<std::atomic<Version>, kKeys> level3_{};
  ApplyEpoch epoch_ = 0;
};

}  // namespace hps::shared_nodes
