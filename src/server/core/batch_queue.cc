#include "server/core/batch_queue.h"

#include <algorithm>

#include "base/limits.h"
#include "base/macros.h"

namespace hps::server {

BatchQueue::BatchQueue(const Options& options)
    : options_(options), free_slots_(std::max<size_t>(options.turn_count, 1)) {
  HPS_CHECK(options_.slot_count > 0 && options_.keys_max > 0 && options_.parts_max > 0);
  for (std::vector<size_t>& slots : free_slots_) slots.reserve(options_.slot_count);
  MutexLock lock(mutex_);
  models_.reserve(kTablesPerStoreMax);  // each model has a table: requests allocate nothing
  for (size_t slot = options_.slot_count; slot > 0; --slot) FreeSlot(slot - 1);
}

void BatchQueue::FreeSlot(size_t slot) {
  free_slots_[slot % free_slots_.size()].push_back(slot);
  ++free_slot_count_;
}

// REQUIRES: one is free.
size_t BatchQueue::TakeSlot() {
  while (free_slots_[turn_].empty()) turn_ = (turn_ + 1) % free_slots_.size();
  const size_t slot = free_slots_[turn_].back();
  free_slots_[turn_].pop_back();
  --free_slot_count_;
  turn_ = (turn_ + 1) % free_slots_.size();
  return slot;
}

BatchQueue::Work BatchQueue::Enter(CallState& call, ModelQueue& queue) {
  MutexLock lock(mutex_);
  if (!call.cancelled.load(std::memory_order_relaxed)) {
    Append(call, queue);
    return Next();
  }
  Work work = Next();
  work.overdue.Push(&call);
  return work;
}

BatchQueue::Place BatchQueue::Remove(CallState& call, ModelQueue& queue) {
  MutexLock lock(mutex_);
  if (!call.is_waiting) return {.slot = call.slot};
  call.is_waiting = false;
  queue.calls.Remove(&call);
  TakeKeys(queue, call.plan.key_count);
  NoteHead(queue);
  if (queue.calls.empty()) std::erase(models_, &queue);
  return {.waited = true};
}

BatchQueue::Work BatchQueue::EndWaiting() {
  MutexLock lock(mutex_);
  ended_ = true;
  return Next();
}

BatchQueue::Work BatchQueue::ReleaseSlot(size_t slot) {
  MutexLock lock(mutex_);
  FreeSlot(slot);
  return Next();
}

BatchQueue::Work BatchQueue::TakeDue() {
  MutexLock lock(mutex_);
  return Next();
}

bool BatchQueue::AwaitDue() {
  MutexLock lock(mutex_);
  while (!stopped_ && options_.clock->Now() < due_) {
    if (due_ == kNoDeadline) {
      due_changed_.Wait(mutex_);
    } else {
      due_changed_.WaitUntil(mutex_, due_);
    }
  }
  return !stopped_;
}

void BatchQueue::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  due_changed_.NotifyAll();
}

Deadline BatchQueue::next_due() const {
  MutexLock lock(mutex_);
  return due_;
}

void BatchQueue::Append(CallState& call, ModelQueue& queue) {
  if (queue.calls.empty()) models_.push_back(&queue);
  call.is_waiting = true;
  queue.calls.Push(&call);
  AddKeys(queue, call.plan.key_count);
  first_deadline_ = std::min(first_deadline_, call.deadline);
  NoteHead(queue);
}

CallState* BatchQueue::TakeHead(ModelQueue& queue) {
  CallState* call = queue.calls.Pop();
  call->is_waiting = false;
  TakeKeys(queue, call->plan.key_count);
  return call;
}

void BatchQueue::AddKeys(ModelQueue& queue, uint64_t key_count) {
  queue.key_count += key_count;
  waiting_keys_.fetch_add(key_count, std::memory_order_relaxed);
}

void BatchQueue::TakeKeys(ModelQueue& queue, uint64_t key_count) {
  queue.key_count -= key_count;
  waiting_keys_.fetch_sub(key_count, std::memory_order_relaxed);
}

void BatchQueue::NoteHead(ModelQueue& queue) {
  queue.depth.store(queue.calls.size(), std::memory_order_relaxed);
  const CallState* head = queue.calls.head();
  queue.head_since_ns.store(head == nullptr ? 0 : Duration(head->run_at.time_since_epoch()).count(),
                            std::memory_order_relaxed);
}

// Costs one look at each waiting call, and is done only when at least one of them was overdue.
void BatchQueue::TakeOverdue(TimePoint now, CallList* overdue) {
  if (now < first_deadline_ && !ended_) return;
  first_deadline_ = kNoDeadline;
  for (ModelQueue* queue : models_) {
    for (size_t count = queue->calls.size(); count > 0; --count) {
      CallState* call = TakeHead(*queue);
      if (call->deadline <= now || ended_) {
        overdue->Push(call);
        continue;
      }
      call->is_waiting = true;
      queue->calls.Push(call);
      AddKeys(*queue, call->plan.key_count);
      first_deadline_ = std::min(first_deadline_, call->deadline);
    }
    NoteHead(*queue);
  }
  std::erase_if(models_, [](const ModelQueue* queue) { return queue->calls.empty(); });
}

bool BatchQueue::IsReady(const ModelQueue& queue, TimePoint now) const {
  return options_.wait_max <= Duration::zero() || free_slot_count_ == options_.slot_count ||
         queue.key_count >= options_.keys_max ||
         now - queue.calls.head()->run_at >= options_.wait_max;
}

void BatchQueue::TakeBatch(ModelQueue& queue, TimePoint now, Work* work) {
  const CallState* const first = queue.calls.head();
  uint64_t key_count = 0;
  size_t part_count = 0;
  while (CallState* call = queue.calls.head()) {
    const bool fits = call == first || (call->version.get() == first->version.get() &&
                                        key_count + call->plan.key_count <= options_.keys_max &&
                                        part_count + call->plan.parts.size() <= options_.parts_max);
    if (!fits) break;
    key_count += call->plan.key_count;
    part_count += call->plan.parts.size();
    TakeHead(queue);
    call->started_at = now;
    call->slot = work->slot;
    work->calls.Push(call);
  }
  NoteHead(queue);
}

BatchQueue::Work BatchQueue::Next() {
  Work work;
  const TimePoint now = options_.clock->Now();
  TakeOverdue(now, &work.overdue);
  for (auto turn = models_.begin(); free_slot_count_ > 0 && turn != models_.end(); ++turn) {
    ModelQueue& queue = **turn;
    if (!IsReady(queue, now)) continue;
    work.slot = TakeSlot();
    TakeBatch(queue, now, &work);
    std::rotate(models_.begin(), turn + 1, models_.end());
    if (queue.calls.empty()) models_.pop_back();
    break;
  }
  Arm(std::min(first_deadline_, RipeAt()));
  return work;
}

// When the first model may be taken though no call comes and no lookup ends.
Deadline BatchQueue::RipeAt() const {
  if (free_slot_count_ == 0) return kNoDeadline;
  Deadline ripe_at = kNoDeadline;
  for (const ModelQueue* queue : models_)
    ripe_at = std::min(ripe_at, queue->calls.head()->run_at + options_.wait_max);
  return ripe_at;
}

// Re-arms the timer if `due` is earlier: the thread that waits needs to wake only then.
void BatchQueue::Arm(Deadline due) {
  const bool is_earlier = due < due_;
  due_ = due;
  if (is_earlier) due_changed_.NotifyOne();
}

}  // namespace hps::server
