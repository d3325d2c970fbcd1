// Writes changes of the update stream into a level 2 that several nodes share, for the partitions
// that this node owns in their group: one thread.
//
// The owner of a partition writes behind its own level 3: a record waits until the node's own
// subscription has applied it. The group's offset is committed behind the write, so the next owner
// begins with what may be missing. What is written twice changes nothing (tier/shared_table.h).
//
// Records that wait take memory, which is bounded. If it is full and nothing can be written for a
// while, because level 3 of their table stands still, this node leaves the table to other members
// of the group until its level 3 goes on: the other tables must not wait for it.
//
// Thread-safe. Must end before what it borrows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/step_thread.h"
#include "hps/update_statistics.h"
#include "serving/model_registry.h"
#include "update/shared_group.h"
#include "update/stream_write.h"

namespace hps {

class SharedWriter {
 public:
  struct Options {
    ModelRegistry* registry = nullptr;  // borrowed
    // Joins the group for these tables; called again when tables come, go or begin anew.
    std::function<absl::StatusOr<std::unique_ptr<SharedGroup>>(std::vector<std::string> tables)>
        join{};
    size_t memory_bytes_max = size_t{32} << 20;            // of records that are not written yet
    Duration look_every = std::chrono::milliseconds(500);  // for tables
    Duration stands_after = std::chrono::seconds(2);       // without a write, while memory is full
  };
  // Starts the thread. It ends after the write that is under way. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<SharedWriter>> Start(const Options& options);
  SharedWriter(const SharedWriter&) = delete;
  SharedWriter& operator=(const SharedWriter&) = delete;

  SharedGroupStatistics Statistics() const;

 private:
  // When this changes, the offsets of a table's records mean other records.
  struct TableState {
    Incarnation incarnation = 0;
    uint16_t generation = 0;
    friend bool operator==(const TableState&, const TableState&) = default;
  };
  using Tables = std::map<std::string, TableState>;
  using Place = std::pair<std::string, uint32_t>;  // table and partition
  struct Waiting {
    std::deque<UpdateRecord> records{};
    uint64_t next = 0;  // the offset behind the last record that was read

    size_t bytes() const;
  };

  // A table that is left to others.
  struct LeftTable {
    TableState state;
    std::map<uint32_t, uint64_t> waits_from{};  // by partition: the first offset that waits
  };

  explicit SharedWriter(const Options& options) : options_(options) {}

  Duration Step();  // how long to wait then
  static bool GoesOn(const LeftTable& left, const TableState& state,
                     std::span<const StreamPosition> applied);
  Tables SharedTables() const;
  void FollowTables();
  void Take(std::vector<UpdateRecord> records);
  absl::Status WriteAll();
  absl::Status WritePartition(const Place& place, std::deque<UpdateRecord>& records);
  size_t Gather(const std::deque<UpdateRecord>& records, const TableSpec& spec,
                std::span<const StreamPosition> applied, StreamWrite& write) const;
  std::vector<StreamPosition> Applied(const std::string& table) const;
  void LeaveStandingTable();
  void ForgetOthers(const std::vector<Place>& owned);
  std::optional<uint64_t> LagOf(const Place& place) const;
  void Publish();

  const Options options_;

  // Of the thread:
  Tables tables_;
  std::unique_ptr<SharedGroup> group_;
  std::map<Place, Waiting> waiting_;  // records end before their group
  size_t waiting_bytes_ = 0;
  std::map<std::string, LeftTable> left_;
  std::vector<Place> counted_;  // to count takeovers: what this node owned last; kept while
                                // it owns nothing, which it does for a moment after a join
  TimePoint progress_at_{};     // when a change was written last, or there was memory
  TimePoint next_look_{};
  TimePoint next_publish_{};
  bool is_failing_ = false;

  mutable Mutex mutex_;
  SharedGroupStatistics statistics_ HPS_GUARDED_BY(mutex_) = {.enabled = true};

  StepThread thread_;  // declared last, so it ends first
};

}  // namespace hps
