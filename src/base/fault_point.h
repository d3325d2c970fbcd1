// Named places in the code at which a test can make the process die, an operation fail, or a thread
// wait, so that every step of a multi-step change can be its last one.
//
//   absl::Status Switch() {
//     HPS_FAULT_POINT("l3.switch.before_write");  // in functions that return Status or StatusOr
//     ...
//   }
//
// Names are "<folder>.<operation>.<moment>" and unique in the source. A point is armed by
// FaultPoints::Arm, or for a child process by the environment:
//
//   HPS_FAULT_ARM="l3.switch.before_write=abort,l3.import.before_sync=fail:UNAVAILABLE@2"
//
// where "@n" lets the first n arrivals pass. Thread-safe. A build without HPS_FAULT_POINTS has none
// of this: the macro is empty there.
#pragma once

#if defined(HPS_FAULT_POINTS)

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/macros.h"

namespace hps {

enum class FaultAction {
  kAbort,  // ends the process as kill -9 does: nothing is flushed, no handler runs
  kFail,   // the operation returns FaultPlan::status
  kWait,   // the thread waits until the point is disarmed; at most kFaultWaitMax
};

struct FaultPlan {
  FaultAction action = FaultAction::kAbort;
  absl::Status status = absl::UnavailableError("a planned fault");  // of kFail
  uint64_t arrivals_skipped = 0;  // these pass before the plan takes effect
  uint64_t times = UINT64_MAX;    // it takes effect this often, then arrivals pass again
};

inline constexpr Duration kFaultWaitMax = std::chrono::seconds(60);

// The points of this process.
class FaultPoints {
 public:
  // Replaces what `name` was armed with. A point of that name need not exist yet.
  static void Arm(const std::string& name, const FaultPlan& plan);
  // Arms from text in the form of HPS_FAULT_ARM. Errors: INVALID_ARGUMENT, which quotes the part;
  // nothing is armed then.
  static absl::Status ArmFromText(std::string_view text);
  // Lets the threads that wait at the point go on.
  static void Disarm(const std::string& name);
  static void DisarmAll();

  // Waits until a thread stands at `name`, armed with kWait. False when the deadline passed first.
  static bool AwaitWaiting(const std::string& name, Deadline deadline);

  // Begins to count all arrivals, also at points that are not armed.
  static void Record();
  // Arrivals by name since Record, or since the point was armed.
  static std::map<std::string, uint64_t> Arrivals();

  // What HPS_FAULT_POINT calls. One relaxed load when nothing is armed.
  // Errors: the plan's; DEADLINE_EXCEEDED when nobody ended a wait.
  static absl::Status Reach(const char* name);
};

}  // namespace hps

#define HPS_FAULT_POINT(name) HPS_RETURN_IF_ERROR(::hps::FaultPoints::Reach(name))

#else

#define HPS_FAULT_POINT(name) static_cast<void>(0)

#endif
