#include "testing/faults/tier_faults.h"

#include "base/macros.h"

namespace hps {

void TierFaults::Plan(TierOperation operation, const TierFaultRule& rule) {
  MutexLock lock(mutex_);
  Operation& planned = operations_[static_cast<size_t>(operation)];
  planned.rule = rule;
  planned.rule_calls = 0;
  planned.rule_taken = 0;
}

void TierFaults::PlanBySeed(uint64_t seed, std::span<const TierOperation> operations,
                            const TierFaultRates& rates) {
  MutexLock lock(mutex_);
  random_.seed(seed);
  rates_ = rates;
  for (Operation& operation : operations_) operation.by_seed = false;
  for (TierOperation operation : operations)
    operations_[static_cast<size_t>(operation)].by_seed = true;
}

void TierFaults::Clear() {
  {
    MutexLock lock(mutex_);
    for (Operation& operation : operations_) {
      operation.rule.reset();
      operation.by_seed = false;
    }
  }
  Release();
}

void TierFaults::Release() {
  MutexLock lock(mutex_);
  // A released call can't leave while the lock is held, because it unlinks itself under the lock.
  for (DelayedCall* call = delayed_; call != nullptr; call = call->next) {
    if (!call->latch.IsOpen()) call->latch.CountDown();
  }
}

size_t TierFaults::delayed_count() const {
  MutexLock lock(mutex_);
  return delayed_count_;
}

void TierFaults::set_can_block(std::optional<bool> can_block) {
  MutexLock lock(mutex_);
  can_block_ = can_block;
}

std::optional<bool> TierFaults::can_block() const {
  MutexLock lock(mutex_);
  return can_block_;
}

uint64_t TierFaults::calls(TierOperation operation) const {
  MutexLock lock(mutex_);
  return operations_[static_cast<size_t>(operation)].calls;
}

uint64_t TierFaults::injected(TierOperation operation) const {
  MutexLock lock(mutex_);
  return operations_[static_cast<size_t>(operation)].injected;
}

TierFaultRule TierFaults::Draw() {
  const double chance = std::uniform_real_distribution<double>(0, 1)(random_);
  double bound = rates_.fail;
  if (chance < bound) return {.fault = TierFault::kFail, .status = rates_.status};
  bound += rates_.fail_late;
  if (chance < bound) return {.fault = TierFault::kFailLate, .status = rates_.status};
  bound += rates_.drop;
  if (chance < bound) return {.fault = TierFault::kDrop};
  bound += rates_.corrupt;
  if (chance < bound) return {.fault = TierFault::kCorrupt};
  return {.fault = TierFault::kNone};
}

TierFaultRule TierFaults::Decide(Operation& operation) {
  ++operation.calls;
  TierFaultRule rule{.fault = TierFault::kNone};
  if (operation.rule.has_value()) {
    ++operation.rule_calls;
    if (operation.rule_calls <= operation.rule->calls_skipped) return rule;
    if (operation.rule_taken >= operation.rule->times) return rule;
    ++operation.rule_taken;
    rule = *operation.rule;
  } else if (operation.by_seed) {
    rule = Draw();
  }
  if (rule.fault != TierFault::kNone) ++operation.injected;
  return rule;
}

TierFaultRule TierFaults::Begin(TierOperation operation) {
  TierFaultRule rule;
  {
    MutexLock lock(mutex_);
    rule = Decide(operations_[static_cast<size_t>(operation)]);
  }
  if (rule.before) rule.before();
  return rule;
}

absl::Status TierFaults::WaitForRelease(TierFault fault, Deadline deadline) {
  if (fault == TierFault::kStall) {
    deadline =
        DeadlineAfter(executor_ != nullptr ? executor_->clock() : RealClock(), kTierStallMax);
  }
  DelayedCall call;
  {
    MutexLock lock(mutex_);
    call.next = delayed_;
    delayed_ = &call;
    ++delayed_count_;
  }
  const bool released = executor_ != nullptr ? executor_->Await(call.latch, deadline)
                                             : call.latch.WaitUntil(deadline);
  MutexLock lock(mutex_);
  DelayedCall** link = &delayed_;
  while (*link != &call) link = &(*link)->next;
  *link = call.next;
  --delayed_count_;
  if (released) return absl::OkStatus();
  return absl::DeadlineExceededError("a delayed call was not released in time");
}

}  // namespace hps
