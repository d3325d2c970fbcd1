// Reads the update stream of this node's tables and has it applied: one thread.
//
// Every table of the store whose name matches is read, whether its model is loaded or not, unless
// it takes direct changes. Reading begins at the positions in level 3 or, after an import, where
// the import says. A table that cannot be written (its model is being loaded, the disk is full) is
// paused and tried again; the others go on.
//
// A power cut may have cost the node its last changes. So after a start it asks the stream how far
// it had been, and AwaitReady waits until these changes have been applied again.
//
// Thread-safe. Must end before what it borrows.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "hps/update_statistics.h"
#include "tier/durable_tier.h"
#include "update/parked_messages.h"
#include "update/stream_table.h"
#include "update/update_service.h"
#include "update/update_source.h"

namespace hps {

class StreamReader {
 public:
  struct Options {
    UpdateService* updates = nullptr;         // borrowed
    DurableStore* store = nullptr;            // borrowed
    std::vector<std::string> tables = {"*"};  // patterns of names, with * and ?
    Duration ready_wait_max = std::chrono::seconds(30);
    Duration look_every = std::chrono::seconds(1);  // for new tables and imports
  };
  // Starts the thread. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<StreamReader>> Start(std::unique_ptr<UpdateSource> source,
                                                             std::unique_ptr<ParkedMessages> parked,
                                                             const Options& options);
  // Ends after the write that is under way.
  ~StreamReader();
  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  // Waits until what this node had applied before its start is applied again, or until
  // `ready_wait_max` has passed; StreamStatistics::recovery_unverified says which.
  void AwaitReady();
  // Ends the waiting of AwaitReady, now and later.
  void StopWaiting();

  StreamStatistics Statistics() const;

 private:
  struct Entry {
    std::unique_ptr<StreamTable> table;
    bool had_positions = false;  // level 3 had some when the stream was begun
    bool is_paused = false;
    std::string why;  // it is paused
    TimePoint retry_at{};
    Duration retry_wait{};
  };
  class ReadTask final : public Task {
   public:
    explicit ReadTask(StreamReader& reader) : reader_(reader) {}
    void Run() override {
      while (reader_.Step()) continue;
    }

   private:
    StreamReader& reader_;
  };
  enum class Recovery { kAsking, kCatchingUp, kDone };

  StreamReader(std::unique_ptr<UpdateSource> source, std::unique_ptr<ParkedMessages> parked,
               const Options& options);

  bool Step();
  bool IsEnding() const;
  void WaitFor(Duration wait);
  bool Matches(const std::string& table) const;
  void FindTables();
  void Subscribe(const TableInfo& info);
  void Forget(const std::string& name);
  void Distribute(UpdateBatch batch);
  void ApplyAll();
  void Apply(Entry& entry);
  void CommitHint(const StreamTable& table);
  void Pause(Entry& entry, const absl::Status& why);
  void FollowRecovery();
  void AskHowFar();
  absl::StatusOr<bool> AskHowFarOf(const std::string& name, const StreamTable& table);
  bool IsMissing(const std::string& name) const;
  void EndRecovery();
  void Publish();

  const Options options_;
  const TimePoint started_at_ = RealClock().Now();
  const std::unique_ptr<ParkedMessages> parked_;

  // Of the reading thread:
  std::unique_ptr<UpdateSource> source_;
  std::map<std::string, Entry> tables_;
  std::map<std::string, Incarnation> refused_;  // tables that take direct changes
  TimePoint next_look_{};
  TimePoint next_publish_{};
  std::string problem_;  // of the last Poll
  Recovery recovery_ = Recovery::kAsking;
  // Positions that the node had reached before its start, by table and partition.
  std::map<std::pair<std::string, uint32_t>, uint64_t> targets_;
  std::string unverified_;  // why the recovery verifies nothing; empty = it does

  mutable Mutex mutex_;
  CondVar changed_;
  bool ending_ HPS_GUARDED_BY(mutex_) = false;
  bool waits_ HPS_GUARDED_BY(mutex_) = true;
  StreamStatistics statistics_ HPS_GUARDED_BY(mutex_);

  ReadTask task_{*this};
  std::unique_ptr<WorkerPool> thread_;  // declared last, so it ends first
};

}  // namespace hps
