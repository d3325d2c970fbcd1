// The server's own part of an InferenceCall: what it validated, what it holds, and when what
// happened.
//
// Belongs to its call; for whoever the call belongs to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "inference/prediction.h"
#include "server/core/admission.h"
#include "server/core/inference_call.h"
#include "server/core/model_version.h"

namespace hps::server {

class ServerModel;
struct ModelQueue;

// A place in the answer: an output of the call, from an offset on.
struct OutputPlace {
  static constexpr size_t kNone = static_cast<size_t>(-1);

  size_t output = kNone;  // index in the call's outputs
  size_t offset_bytes = 0;

  bool is_set() const { return output != kNone; }
};

// The keys of one table in a call, and where their answers go: to the table's own outputs, to the
// joint ones of all tables (OUTPUT0), or to both. The lookup writes to `rows()` and `status()`;
// where both are asked for, the joint ones are copies.
struct TablePart {
  uint32_t table = 0;               // index in the version's tables
  const std::byte* keys = nullptr;  // [key_count] of 8 bytes, not necessarily aligned
  size_t key_count = 0;
  Shape key_shape{};
  size_t row_bytes = 0;
  OutputPlace table_rows{};
  OutputPlace joint_rows{};
  OutputPlace table_status{};
  OutputPlace joint_status{};
  // Of a prediction, where the client does not ask for the rows: where they go.
  std::byte* network_rows = nullptr;

  const OutputPlace& rows() const { return table_rows.is_set() ? table_rows : joint_rows; }
  const OutputPlace& status() const { return table_status.is_set() ? table_status : joint_status; }
};

struct CallState {
  static constexpr size_t kNoSlot = static_cast<size_t>(-1);

  explicit CallState(InferenceCall& owner) : call(&owner) {}

  static CallState& Of(InferenceCall& call) { return *call.prepared_; }

  // Gives back what the call holds, and counts the time that it took when it was answered.
  void Reset();

  // Fills in joint outputs whose rows were looked up for the tables' own outputs.
  void CopyJointOutputs();

  // Ends the call: counts it, lets go of the model's version, and hands it back to the codec.
  void Finish(const absl::Status& status);

  InferenceCall* const call;
  ServerModel* model = nullptr;  // null: not prepared
  const Clock* clock = nullptr;
  ModelVersionRef version;
  std::string version_text;
  Admission::Reservation reservation;
  std::vector<TablePart> parts;
  size_t key_count = 0;
  // The call is for the network's outputs. prediction.outputs and the inputs' rows get their
  // memory when the call is run.
  bool is_prediction = false;
  Prediction prediction;
  std::vector<size_t>
      prediction_outputs;           // by output of the network: index in the call's, or kNone
  uint64_t network_bytes = 0;       // that rows and inputs of the network take meanwhile
  Deadline deadline = kNoDeadline;  // it is not begun after this
  Deadline lookup_deadline = kNoDeadline;  // rows that have not come by then are given up
  TimePoint arrival{};
  TimePoint run_at{};      // handed over by the codec
  TimePoint started_at{};  // its lookup began
  TimePoint done_at{};
  bool answered = false;  // OnDone was called with OK
  // Nobody wants the answer any more. Set by any thread, before it looks where the call is.
  std::atomic<bool> cancelled = false;
  // Of the batch queue, under its lock: whether the call waits there, and the slot that took it.
  bool is_waiting = false;
  size_t slot = kNoSlot;
  // Of the slot's runner, under its lock: whether it is being looked up.
  bool in_lookup = false;
  // Of the list that it is in, whatever that is.
  CallState* next = nullptr;
  CallState* previous = nullptr;
  // Of the lookup that runs: positions that got a default row because a level failed or the
  // deadline passed.
  size_t degraded_count = 0;
};

// What calls end with that are not answered; made beforehand, so that ending one takes no memory.
struct TerminalStatuses {
  static const TerminalStatuses& Get();

  absl::Status cancelled;       // nobody wants it any more
  absl::Status late_in_queue;   // its deadline passed while it waited
  absl::Status late_in_lookup;  // ... while it was looked up
  absl::Status waited_unread;   // the server was too busy to read it in time
};

// First in, first out. A call is in at most one list. Not thread-safe.
class CallList {
 public:
  void Push(CallState* call) {
    call->next = nullptr;
    call->previous = empty() ? nullptr : tail_;
    (empty() ? head_ : tail_->next) = call;
    tail_ = call;
    ++size_;
  }
  CallState* Pop() {
    CallState* call = head_;
    if (call != nullptr) Remove(call);
    return call;
  }
  // REQUIRES: it is in this list.
  void Remove(CallState* call) {
    (call->previous == nullptr ? head_ : call->previous->next) = call->next;
    (call->next == nullptr ? tail_ : call->next->previous) = call->previous;
    call->next = call->previous = nullptr;
    --size_;
  }
  CallState* head() const { return head_; }
  bool empty() const { return head_ == nullptr; }
  size_t size() const { return size_; }

 private:
  CallState* head_ = nullptr;
  CallState* tail_ = nullptr;
  size_t size_ = 0;
};

}  // namespace hps::server
