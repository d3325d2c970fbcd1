// Reads the update stream of this node's tables and has it applied: one thread.
//
// Every table of the store whose name matches is read, whether its model is loaded or not, unless
// it takes direct changes. Reading begins at the positions in level 3 or, after an import, where
// the import says. A table that cannot be written (its model is being loaded, the disk is full) is
// paused and tried again; the others go on.
//
// A power cut may have cost the node its last changes. AwaitReady waits until they have been
// applied again (update/stream_recovery.h).
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
#include "base/mutex.h"
#include "base/step_thread.h"
#include "hps/update_statistics.h"
#include "tier/durable_tier.h"
#include "update/parked_messages.h"
#include "update/stream_recovery.h"
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
  // Starts the thread. It ends after the write that is under way. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<StreamReader>> Start(std::unique_ptr<UpdateSource> source,
                                                             std::unique_ptr<ParkedMessages> parked,
                                                             const Options& options);
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
    std::string why;  // it is paused; empty: it is not
    TimePoint retry_at{};
    Duration retry_wait{};
  };
  StreamReader(std::unique_ptr<UpdateSource> source, std::unique_ptr<ParkedMessages> parked,
               const Options& options)
      : options_(options),
        parked_(std::move(parked)),
        source_(std::move(source)),
        recovery_(*source_, options.ready_wait_max) {}

  Duration Step();  // how long to wait then
  void FindTables();
  void Subscribe(const TableInfo& info);
  void Forget(const std::string& name);
  void Distribute(UpdateBatch batch);
  void ApplyAll();
  void Apply(Entry& entry);
  void CommitHint(const StreamTable& table);
  void Pause(Entry& entry, const absl::Status& why);
  void FollowRecovery();
  void Publish();

  const Options options_;
  const std::unique_ptr<ParkedMessages> parked_;

  // Of the reading thread:
  const std::unique_ptr<UpdateSource> source_;
  std::map<std::string, Entry> tables_;         // their records end before their source
  std::map<std::string, Incarnation> refused_;  // tables that take direct changes
  TimePoint next_look_{};
  TimePoint next_publish_{};
  std::string problem_;  // of the last Poll
  StreamRecovery recovery_;

  mutable Mutex mutex_;
  CondVar ready_;
  bool waits_ HPS_GUARDED_BY(mutex_) = true;
  StreamStatistics statistics_ HPS_GUARDED_BY(mutex_) = {
      .enabled = true, .problem = {}, .recovering = true};

  StepThread thread_;  // declared last, so it ends first
};

}  // namespace hps
