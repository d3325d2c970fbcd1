// Answers the requests of one batch together and ends each of them: the one way from plans to
// answers, for the server, the backend of Triton and PredictionModel.
//
// Every request's rows go straight into its own outputs. A batch is looked up until the earliest
// deadline among its requests. Requests that lack rows then, and whose own deadline is later, are
// looked up again without the others. So a request with a short deadline is answered in time, and
// costs the others only a second look at the rows that are near by then. A request that is given up
// (Interrupt) ends at once in the same way. A level that hangs may go on working for that request,
// but only in the level's own memory. The network then runs for all predictions whose rows are
// there; if that fails, for each of them alone, so that one of them does not fail the others.
//
// One for each lookup slot, for the thread that has the slot; any thread may call Interrupt and
// End. Allocates when it is made, and for batches that are larger than those before.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "hps/lookup_cancel.h"
#include "hps/server_config.h"
#include "inference/batch_executor.h"
#include "inference/model_version.h"
#include "inference/planned_request.h"

namespace hps {

class BatchCore {
 public:
  struct Options {
    size_t slot = 0;      // of the versions' sessions that it uses
    size_t keys_max = 0;  // of one lookup; more keys are looked up in turn
    LateAnswers late_answers = LateAnswers::kDegraded;
    const Clock* clock = nullptr;
  };
  // A lookup of requests of the batch has ended, after `time`; it answered keys as `counts` say,
  // none if it failed. Called before a request of it ends.
  using OnLookup = absl::FunctionRef<void(Duration time, const LookupCounts& counts)>;

  explicit BatchCore(const Options& options);

  // `requests` are planned for `version`, which the caller keeps. Finish of each is called once:
  // with OK;
  // DEADLINE_EXCEEDED (rows were missing at its deadline, and late answers are errors); CANCELLED;
  // RESOURCE_EXHAUSTED (no memory); or an error of the lookup or of the network.
  void Run(ModelVersion& version, RequestList<> requests, OnLookup on_lookup);

  // Ends the lookup that `request` is in, if it is in one. The other requests of that lookup are
  // looked up again. REQUIRES: `request` is marked as cancelled, and is not used again meanwhile.
  void Interrupt(const PlannedRequest& request);

  // From now on no request waits for rows: all are answered as if their deadlines had passed.
  void End();

  // What a request ends with that is cancelled; made beforehand, so that ending one takes no
  // memory.
  static const absl::Status& Cancelled();

 private:
  BatchExecutor::Plans PlansOf(const RequestList<>& requests);
  void BeginLookup(const RequestList<>& requests);
  bool EndLookup(const RequestList<>& requests);
  static RequestList<> EndCancelled(RequestList<> requests);
  RequestList<> EndAnswered(ModelVersion& version, RequestList<> requests, bool ended_early);
  bool EndLate(PlannedRequest& request) const;
  void Predict(ModelVersion& version, RequestList<> requests);
  absl::Status RunNetwork(ModelVersion& version, const RequestList<>& requests);

  const Options options_;
  const absl::Status late_;  // made beforehand, likewise
  BatchExecutor executor_;
  std::vector<ExecutionPlan*> plans_;  // of the lookup or of the network's run
  LookupCancel cancel_;
  std::atomic<bool> ended_ = false;  // End was called
  Mutex mutex_;                      // whether requests are looked up: PlannedRequest::in_lookup
};

}  // namespace hps
