// The server's Inference: admission, batching over lookup slots, deadlines, statistics.
//
// Lookups run on the threads that bring calls. ServerCore's timer ends the calls whose deadline
// passes while they wait, and begins lookups when a batch wait is over.
//
// Thread-safe. Every call must have ended and been reset before it is destroyed.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "hps/config.h"
#include "inference/batch_core.h"
#include "server/core/admission.h"
#include "server/core/batch_queue.h"
#include "server/core/inference.h"
#include "server/core/server_counters.h"
#include "server/core/server_model.h"

namespace hps::server {

class InferenceEngine final : public Inference {
 public:
  struct Options {
    ServerConfig server;
    Duration lookup_timeout{};  // of calls that name none; zero = they take what is near
    size_t slot_count = 1;      // lookups at a time
    size_t device_count = 1;    // among which the slots take turns; 0: the host alone
    size_t lookup_keys_max = 0;
    const Clock* clock = nullptr;
  };

  // All borrowed; they must outlive it.
  InferenceEngine(const Options& options, ModelDirectory& models, ServerCounters& counters);
  ~InferenceEngine() override;

  absl::Status Prepare(InferenceCall& call) override;
  void Run(InferenceCall& call) override;
  void Cancel(InferenceCall& call) override;
  bool HasRoom() const override { return queue_.HasRoom(); }
  Duration TimeFor(Duration timeout) const override;
  absl::Status ReserveBytes(uint64_t byte_count, Admission::Reservation* reservation) override {
    return admission_.ReserveBytes(byte_count, reservation);
  }

  // Refuses new calls from now on; those that are admitted go on.
  void RefuseCalls() { refusing_.store(true, std::memory_order_relaxed); }
  // ... and ends those that are admitted, as if their deadlines had passed.
  void EndCalls();

  // Ends what is overdue and looks up what has waited long enough: on `executor`, so that a lookup
  // does not keep others from being ended; null = here, for tests. The executor queues slot_count
  // tasks.
  void EndDue(Executor* executor = nullptr);
  // Waits until EndDue may have something to do; false when StopWaiting was called.
  bool AwaitDue() { return queue_.AwaitDue(); }
  void StopWaiting() { queue_.Stop(); }
  Deadline next_due() const { return queue_.next_due(); }

  const Admission& admission() const { return admission_; }

 private:
  // Does the work of a slot elsewhere.
  class SlotTask final : public Task {
   public:
    explicit SlotTask(InferenceEngine& engine) : engine_(engine) {}
    void Run() override { engine_.Do(work); }

    BatchQueue::Work work;

   private:
    InferenceEngine& engine_;
  };

  absl::Status PrepareIn(InferenceCall& call, CallState& prepared, ServerModel& model);
  absl::Status CheckUnreadWait(const InferenceRequest& request, const CallState& prepared) const;
  absl::Status CheckWait(const CallState& prepared, const ServerModel& model) const;
  void SetDeadlines(const InferenceRequest& request, CallState& prepared) const;
  void CountRefusal(const absl::Status& status);
  void Do(BatchQueue::Work work);
  void RunBatch(size_t slot, CallList calls);
  void EndOverdue(CallList calls);

  const Options options_;
  ModelDirectory& models_;
  ServerCounters& counters_;
  Admission admission_;
  BatchQueue queue_;
  std::vector<std::unique_ptr<BatchCore>> cores_;      // by slot
  std::vector<std::unique_ptr<SlotTask>> slot_tasks_;  // by slot
  // What calls end with that are not answered; made beforehand, so that ending one takes no memory.
  const absl::Status shutting_down_ = absl::UnavailableError("the server is shutting down");
  const absl::Status late_in_queue_ =
      absl::DeadlineExceededError("the deadline passed before the lookup began");
  const absl::Status waited_unread_ = absl::ResourceExhaustedError(
      "the server is at its capacity (the request waited too long to be read); try again later");
  std::atomic<bool> refusing_{false};
};

}  // namespace hps::server
