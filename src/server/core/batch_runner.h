// Looks up the calls of one batch together and ends each of them.
//
// Every call's rows go straight into its own outputs. A batch is looked up until the earliest
// deadline among its calls. Calls that lack rows then, and whose own deadline is later, are looked
// up again without the others. So a call with a short deadline is answered in time, and costs the
// other calls only a second look at the rows that are near by then. A call that is given up
// (Interrupt) ends at once in the same way. A level that hangs may go on working for that call, but
// only in the level's own memory.
//
// One for each lookup slot, for the thread that has the slot; any thread may call Interrupt and
// End. Allocates when it is made.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "hps/lookup_cancel.h"
#include "hps/server_config.h"
#include "inference/batch_executor.h"
#include "server/core/call_state.h"
#include "server/core/server_counters.h"

namespace hps::server {

class BatchRunner {
 public:
  struct Options {
    size_t slot = 0;
    size_t keys_max = 0;  // of one lookup; a larger call is looked up in pieces
    LateAnswers late_answers = LateAnswers::kDegraded;
    const Clock* clock = nullptr;
    ServerCounters* counters = nullptr;
  };

  explicit BatchRunner(const Options& options);

  // `calls` are of one version of one model; together they have at most keys_max keys, or they are
  // a single one. Ends with OnDone of each: RESOURCE_EXHAUSTED where the lookup found no memory.
  void Run(CallList calls);

  // Ends the lookup that `call` is in, if it is in one. The other calls of that lookup are looked
  // up again. REQUIRES: `call` is marked as cancelled, and is not reset meanwhile.
  void Interrupt(const CallState& call);

  // From now on no call waits for rows: all are answered as if their deadlines had passed.
  void End();

 private:
  absl::Status LookUp(ModelVersion& version, CallState* first, Deadline deadline);
  BatchExecutor::Plans PlansOf(CallState* first);
  void BeginLookUp(CallState* first);
  bool EndLookUp(CallState* first);
  CallList EndAnswered(ModelVersion& version, CallList calls, bool ended_early);
  static CallList EndCancelled(CallList calls);
  bool EndLate(CallState* call);
  void Predict(ModelVersion& version, CallList calls);
  absl::Status RunNetwork(ModelVersion& version, const CallList& calls);

  const Options options_;
  BatchExecutor executor_;
  std::vector<ExecutionPlan*> plans_;  // of the lookup or of the network's run
  LookupCancel cancel_;
  std::atomic<bool> ended_ = false;  // End was called
  Mutex mutex_;                      // whether calls are looked up: CallState::in_lookup
};

}  // namespace hps::server
