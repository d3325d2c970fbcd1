// Writes changes of the update stream into a level 2 that several nodes share, for the partitions
// that this node owns in their group: one thread.
//
// The owner of a partition writes behind its own level 3: a record waits until the node's own
// subscription has applied it. The group's offset is committed behind the write, so the next owner
// begins with what may be missing. What is written twice changes nothing (tier/shared_table.h).
//
// Must end before what it borrows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
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
  };
  // Starts the thread. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<SharedWriter>> Start(const Options& options);
  ~SharedWriter();
  SharedWriter(const SharedWriter&) = delete;
  SharedWriter& operator=(const SharedWriter&) = delete;

 private:
  class WriteTask final : public Task {
   public:
    explicit WriteTask(SharedWriter& writer) : writer_(writer) {}
    void Run() override {
      while (writer_.Step()) continue;
    }

   private:
    SharedWriter& writer_;
  };
  // What makes records of a table mean something else.
  struct TableState {
    Incarnation incarnation = 0;
    uint16_t generation = 0;
    friend bool operator==(const TableState&, const TableState&) = default;
  };
  using Tables = std::map<std::string, TableState>;
  using Place = std::pair<std::string, uint32_t>;  // table and partition

  explicit SharedWriter(const Options& options) : options_(options) {}

  bool Step();
  // False: the writer ends.
  bool WaitFor(Duration wait);
  Tables SharedTables() const;
  void FollowTables();
  void Take(std::vector<UpdateRecord> records);
  absl::Status WriteAll();
  absl::Status WritePartition(const Place& place, std::deque<UpdateRecord>& records);
  size_t Gather(const Place& place, const std::deque<UpdateRecord>& records, const TableSpec& spec,
                const StreamPosition& applied, StreamWrite& write) const;

  const Options options_;

  // Of the thread:
  Tables tables_;
  std::unique_ptr<SharedGroup> group_;
  std::map<Place, std::deque<UpdateRecord>> waiting_;  // they end before their group
  size_t waiting_bytes_ = 0;
  TimePoint next_look_{};
  bool is_failing_ = false;

  Mutex mutex_;
  CondVar changed_;
  bool ending_ HPS_GUARDED_BY(mutex_) = false;

  WriteTask task_{*this};
  std::unique_ptr<WorkerPool> thread_;  // declared last, so it ends first
};

}  // namespace hps
