// Plans the faults of a tier: the decorators of testing/faults/fault_tier.h follow the plan.
//
//   TierFaults faults;
//   auto table = WithFaults(std::move(real_table), &faults);
//   faults.Plan(TierOperation::kFetch,
//               {.fault = TierFault::kFail, .calls_skipped = 3, .times = 1});
//
// Without a plan the decorators change nothing. No call sleeps: a delayed call waits for Release on
// the given executor, or on a condition variable. A plan may run a function of the test just before
// a call, so that a single thread can step through races. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"

namespace hps {

enum class TierOperation : uint8_t {
  kOpenTable,
  kFetch,
  kInsert,
  kUpdate,
  kErase,
  kRaiseWatermarks,
  kClear,
  kWrite,
  kPositions,
  kScan,
  kScanNext,
  kBeginImport,
  kImportAdd,
  kImportCommit,
  kDropTable,
  kRefresh,
  kSync,
  // For device caches. The operations of their tables have the names above.
  kAcquireCall,
  kBegin,
  kMisses,
  kFinish,
  kWait,
  kDump,
  kFlush,
};
inline constexpr size_t kTierOperationCount = 24;

enum class TierFault : uint8_t {
  kNone,      // only TierFaultRule::before is run
  kFail,      // an error, and nothing is done
  kFailLate,  // all is done, and then an error
  kDelay,  // waits for Release; DEADLINE_EXCEEDED, and nothing is done, when the deadline is first
  kStall,  // waits for Release whatever the deadline is (at most kTierStallMax), then is done
  kDrop,   // keys are left out: a hit of a lossy tier becomes a miss, of a durable one an absent
           // key; what is written, erased or raised is not; success is reported all the same
  kCorrupt,  // one bit of a row is flipped, on its way in or out
};

struct TierFaultRule {
  TierFault fault = TierFault::kFail;
  absl::Status status = absl::UnavailableError("a planned fault");  // for kFail and kFailLate
  uint64_t calls_skipped = 0;   // of this operation, counted from Plan
  uint64_t times = UINT64_MAX;  // later calls are unaffected
  size_t key_stride = 1;  // kDrop and kCorrupt affect positions 0, key_stride, 2 key_stride...
  std::function<void()> before{};  // run first, without a lock
};

// Probabilities per call, for faults by seed. They are drawn in this order; their sum is at most 1.
struct TierFaultRates {
  double fail = 0;
  double fail_late = 0;
  double drop = 0;
  double corrupt = 0;
  absl::Status status = absl::UnavailableError("a planned fault");  // for fail and fail_late
};

inline constexpr Duration kTierStallMax = std::chrono::seconds(60);

class TierFaults {
 public:
  // With an executor, delayed calls wait through it, so that a ManualExecutor advances the clock.
  explicit TierFaults(Executor* executor = nullptr) : executor_(executor) {}

  // Replaces the plan of this operation.
  void Plan(TierOperation operation, const TierFaultRule& rule);
  // Draws a fault for each call of these operations that has no plan of its own. The same seed and
  // the same order of calls give the same faults.
  void PlanBySeed(uint64_t seed, std::span<const TierOperation> operations,
                  const TierFaultRates& rates);
  // Removes all faults and releases delayed calls.
  void Clear();

  // Releases the calls that are delayed now.
  void Release();
  // Calls that are delayed now.
  size_t delayed_count() const;

  // The result of LossyTable::can_block; if not set, that of the decorated table.
  void set_can_block(std::optional<bool> can_block);
  std::optional<bool> can_block() const;

  uint64_t calls(TierOperation operation) const;
  // Calls that had a fault other than kNone.
  uint64_t injected(TierOperation operation) const;

  // For the decorators: returns the fault of the call that begins now. Runs TierFaultRule::before.
  TierFaultRule Begin(TierOperation operation);
  // For the decorators: waits for kDelay and kStall. Errors: DEADLINE_EXCEEDED.
  absl::Status WaitForRelease(TierFault fault, Deadline deadline);

 private:
  struct Operation {
    std::optional<TierFaultRule> rule;
    bool by_seed = false;
    uint64_t rule_calls = 0;
    uint64_t rule_taken = 0;
    uint64_t calls = 0;
    uint64_t injected = 0;
  };
  struct DelayedCall {
    Latch latch{1};
    DelayedCall* next = nullptr;
  };

  TierFaultRule Decide(Operation& operation) HPS_REQUIRES(mutex_);
  TierFaultRule Draw() HPS_REQUIRES(mutex_);

  Executor* const executor_;
  mutable Mutex mutex_;
  std::array<Operation, kTierOperationCount> operations_ HPS_GUARDED_BY(mutex_);
  std::mt19937_64 random_ HPS_GUARDED_BY(mutex_);
  TierFaultRates rates_ HPS_GUARDED_BY(mutex_);
  std::optional<bool> can_block_ HPS_GUARDED_BY(mutex_);
  DelayedCall* delayed_ HPS_GUARDED_BY(mutex_) = nullptr;
  size_t delayed_count_ HPS_GUARDED_BY(mutex_) = 0;
};

}  // namespace hps
