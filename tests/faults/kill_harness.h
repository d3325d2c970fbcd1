// One store, the processes that write to it until they die, and what must be in it afterwards.
//
// The harness knows every event that a child was acknowledged (the pipe tells), so after each death
// the store must hold exactly these events, or these and the one that was under way: whole, with
// its positions, never a part of it. For one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "tests/faults/child_process.h"
#include "tests/faults/planned_events.h"
#include "tests/faults/temporary_directory.h"

namespace hps {

struct KillCounts {
  uint64_t deaths = 0;
  uint64_t acknowledged = 0;  // events
  uint64_t carried = 0;       // deaths after which the event under way was there
};

class KillHarness {
 public:
  KillHarness(const EventPlan& plan, std::string sync);

  // Runs a child that goes on with the next event and kills it after `life`, but not before it has
  // acknowledged `events_min` events.
  absl::Status RunAndKill(Duration life, uint64_t events_min);

  struct Ending {
    bool killed = false;
    int exit_code = 0;
  };
  // Runs a child for `events` events, or until it dies by itself (a fault point).
  // Errors: DEADLINE_EXCEEDED when it neither ends nor dies.
  absl::StatusOr<Ending> RunToEnd(uint64_t events, const std::vector<std::string>& environment,
                                  const std::string& way = "plain");

  // Opens the store as its next user would and checks it.
  // Errors: INTERNAL when something is lost, left over or mixed; what the store fails with.
  absl::Status Check();

  // Runs a child whose events are defective (`way`), and kills it once it has reported them.
  absl::Status RunDefective(uint64_t events, const std::string& way);

  const KillCounts& counts() const { return counts_; }
  // What the store held at the last Check.
  const PlannedState& state() const { return state_; }
  std::string store() const { return directory_.path("store"); }
  std::string path(const std::string& name) const { return directory_.path(name); }

 private:
  absl::StatusOr<ChildProcess> Start(uint64_t last, const std::vector<std::string>& environment,
                                     const std::string& way);
  void NoteReports(const ChildProcess& child);
  absl::Status CheckLeftovers(DurableStore& opened) const;

  const EventPlan plan_;
  const std::string sync_;
  const TemporaryDirectory directory_;
  PlannedState state_;
  uint64_t acknowledged_ = 0;  // the newest event
  KillCounts counts_;
};

}  // namespace hps
