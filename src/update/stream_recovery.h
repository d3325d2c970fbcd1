// Finds out after a start whether level 3 has lost its last changes, for example by a power cut,
// and follows until they have been applied again.
//
// A node tells the stream how far it has applied each partition (UpdateSource::CommitHint). So
// after the start it asks for these offsets (Committed). Where they lie beyond the positions in
// level 3, the records between are lost, and the stream gives them again. The caller gives no
// hints before the recovery is done: they would replace those from before the start.
//
// A stream that does not answer, or that was never told, verifies nothing. The recovery is done
// then too, after `wait_max` at the latest.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "update/stream_table.h"
#include "update/update_source.h"

namespace hps {

class StreamRecovery {
 public:
  // `source` is borrowed.
  StreamRecovery(UpdateSource& source, Duration wait_max) : source_(source), wait_max_(wait_max) {}
  StreamRecovery(const StreamRecovery&) = delete;
  StreamRecovery& operator=(const StreamRecovery&) = delete;

  // A table that level 3 has positions of, as they were at the start; borrowed until Forget. It is
  // subscribed. One that has none has lost nothing since its import.
  void Add(const StreamTable& table) { tables_[table.name()] = {.table = &table}; }
  void Forget(const std::string& name) { tables_.erase(name); }

  // Goes on. Waits for the stream's answers, at most two seconds for each table.
  void Follow();
  bool is_done() const { return state_ == State::kDone; }

  struct Result {
    uint64_t records = 0;        // that were lost and are applied again
    bool is_unverified = false;  // it is not known whether others were lost, too
    double seconds = 0;          // from the start until the recovery was done
  };
  const Result& result() const { return result_; }

 private:
  enum class State { kAsking, kCatchingUp, kDone };
  struct Table {
    const StreamTable* table = nullptr;
    std::map<uint32_t, uint64_t> targets{};  // by partition: an offset that is not reached yet
  };

  void AskHowFar();
  absl::StatusOr<bool> AskHowFarOf(Table& table);
  bool HasCaughtUp();

  UpdateSource& source_;
  const Duration wait_max_;
  const TimePoint started_at_ = RealClock().Now();
  State state_ = State::kAsking;
  std::map<std::string, Table> tables_;
  std::string unverified_;  // why; empty: what was asked is verified
  Result result_;
};

}  // namespace hps
