// Which calls are looked up next, and in which lookup slot.
//
// A call that finds a slot free gets it; else it waits in its model's queue. A thread that frees a
// slot takes the oldest waiting calls of one model together, as many as fit into one lookup; models
// with waiting calls take turns. With a batch wait, calls that come while lookups run wait for
// more at most that long, and not at all when nothing runs.
//
// Lookups take turns over the devices, so that one at a time uses all of them: no device is idle
// while another fails. Of a device's free slots the one that was used last is taken, whose session
// is there and warm.
//
// Calls whose deadline passes while they wait are handed back as overdue, and so are those that
// were cancelled before they came. The lock is held for a few instructions per call, never during a
// lookup. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "server/core/call_state.h"

namespace hps::server {

// The waiting calls of one model. All but the atomics belongs to the BatchQueue and its lock.
struct ModelQueue {
  CallList calls;
  uint64_t key_count = 0;
  // For statistics and refusals.
  std::atomic<uint64_t> depth{0};
  std::atomic<int64_t> head_since_ns{0};  // when the oldest call came, since Clock's epoch; 0: none
};

class BatchQueue {
 public:
  struct Options {
    size_t slot_count = 1;
    size_t turn_count = 1;  // devices: slot n looks up on device n % turn_count
    uint64_t keys_max = 0;  // of one lookup; a larger call goes alone
    size_t parts_max = 0;   // tables of one lookup, a table counted for each call that asks it
    Duration wait_max{};    // for more calls, while lookups run
    const Clock* clock = nullptr;
  };
  static constexpr size_t kNoSlot = CallState::kNoSlot;
  static constexpr uint64_t kRoomKeysPerSlot = 4096;

  // What the caller has to do: hand back `overdue`; and, when it got a slot, look up `calls`, which
  // are of one version of a model, and then ReleaseSlot(slot).
  struct Work {
    size_t slot = kNoSlot;
    CallList calls{};
    CallList overdue{};
  };

  explicit BatchQueue(const Options& options);
  BatchQueue(const BatchQueue&) = delete;
  BatchQueue& operator=(const BatchQueue&) = delete;

  // Whether fewer than kRoomKeysPerSlot keys wait for each slot. A lookup of more keys gains
  // nothing, and its calls wait long for each other.
  bool HasRoom() const {
    return waiting_keys_.load(std::memory_order_relaxed) < kRoomKeysPerSlot * options_.slot_count;
  }

  // Adds a call to its model's queue. The work may be of other calls.
  Work Enter(CallState& call, ModelQueue& queue);

  // A lookup has ended: gives its slot back, and takes the next work, mostly in the same slot if
  // there is one device.
  Work ReleaseSlot(size_t slot);

  // Removes the call from its queue, if it waits there (`waited`). Otherwise the call is, or was,
  // in `slot`; kNoSlot: it was not entered yet, or was handed back as overdue.
  struct Place {
    bool waited = false;
    size_t slot = kNoSlot;
  };
  Place Remove(CallState& call, ModelQueue& queue);

  // From now on no call waits: all that do, and those that come, are overdue.
  Work EndWaiting();

  // The work that is due although no call has come and no lookup has ended: overdue calls, and
  // calls whose batch wait is over.
  Work TakeDue();

  // Blocks until TakeDue may have work, or until Stop; false after Stop.
  bool AwaitDue();
  void Stop();

  // Until when AwaitDue would wait.
  Deadline next_due() const;

 private:
  void FreeSlot(size_t slot) HPS_REQUIRES(mutex_);
  size_t TakeSlot() HPS_REQUIRES(mutex_);
  void Append(CallState& call, ModelQueue& queue) HPS_REQUIRES(mutex_);
  CallState* TakeHead(ModelQueue& queue) HPS_REQUIRES(mutex_);
  void AddKeys(ModelQueue& queue, uint64_t key_count) HPS_REQUIRES(mutex_);
  void TakeKeys(ModelQueue& queue, uint64_t key_count) HPS_REQUIRES(mutex_);
  void NoteHead(ModelQueue& queue) HPS_REQUIRES(mutex_);
  void TakeOverdue(TimePoint now, CallList* overdue) HPS_REQUIRES(mutex_);
  bool IsReady(const ModelQueue& queue, TimePoint now) const HPS_REQUIRES(mutex_);
  void TakeBatch(ModelQueue& queue, TimePoint now, Work* work) HPS_REQUIRES(mutex_);
  Work Next() HPS_REQUIRES(mutex_);
  Deadline RipeAt() const HPS_REQUIRES(mutex_);
  void Arm(Deadline due) HPS_REQUIRES(mutex_);

  const Options options_;
  std::atomic<uint64_t> waiting_keys_ = 0;  // of all models; written under the lock
  mutable Mutex mutex_;
  CondVar due_changed_;
  // By turn; of each the last one is taken first.
  std::vector<std::vector<size_t>> free_slots_ HPS_GUARDED_BY(mutex_);
  size_t free_slot_count_ HPS_GUARDED_BY(mutex_) = 0;
  size_t turn_ HPS_GUARDED_BY(mutex_) = 0;  // whose slot is taken next, if it has a free one
  // Models with waiting calls, in the order of their turns.
  std::vector<ModelQueue*> models_ HPS_GUARDED_BY(mutex_);
  // No waiting call is overdue before this.
  Deadline first_deadline_ HPS_GUARDED_BY(mutex_) = kNoDeadline;
  Deadline due_ HPS_GUARDED_BY(mutex_) = kNoDeadline;
  bool stopped_ HPS_GUARDED_BY(mutex_) = false;
  bool ended_ HPS_GUARDED_BY(mutex_) = false;  // EndWaiting was called
};

}  // namespace hps::server
