// The server's own part of an InferenceCall: what it validated, what it holds, and when what
// happened.
//
// Belongs to its call, and like it to one thread at a time.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "inference/model_version.h"
#include "inference/planned_request.h"
#include "server/core/admission.h"
#include "server/core/inference_call.h"
#include "server/core/server_counters.h"

namespace hps::server {

class ServerModel;
struct ModelQueue;

struct CallState final : PlannedRequest {
  static constexpr size_t kNoSlot = static_cast<size_t>(-1);

  explicit CallState(InferenceCall& owner) : call(&owner) {}

  static CallState& Of(InferenceCall& call) { return *call.prepared_; }

  // Gives back what the call holds, and counts the time that it took when it was answered.
  void Reset();

  // Ends the call: counts it, lets go of the model's version, and hands it back to the codec.
  void Finish(const absl::Status& status) override;

  InferenceCall* const call;
  ServerModel* model = nullptr;  // null: not prepared
  const Clock* clock = nullptr;
  ServerCounters* counters = nullptr;
  ModelVersionRef version;
  std::string version_text;
  Admission::Reservation reservation;
  Deadline deadline = kNoDeadline;  // it is not begun after this
  TimePoint arrival{};
  TimePoint run_at{};      // handed over by the codec
  TimePoint started_at{};  // its lookup began
  TimePoint done_at{};
  bool answered = false;  // OnDone was called with OK
  // Of the batch queue, under its lock: whether the call waits there, and the slot that took it.
  bool is_waiting = false;
  size_t slot = kNoSlot;
};

using CallList = RequestList<CallState>;

}  // namespace hps::server
