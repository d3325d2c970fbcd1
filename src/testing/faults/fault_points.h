// Arms the fault points of this process (base/fault_point.h). In a program that links this library,
// every HPS_FAULT_POINT can be armed: by FaultPoints::Arm or, in a child process that calls
// ArmFromEnvironment, by the environment:
//
//   HPS_FAULT_ARM="l3.switch.before_write=abort,l3.import.before_sync=fail:UNAVAILABLE@2"
//
// where "@n" lets the first n arrivals pass. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "base/clock.h"

namespace hps {

enum class FaultAction {
  kAbort,  // ends the process as kill -9 does: nothing is flushed, no handler runs
  kFail,   // the operation returns FaultPlan::status
  kWait,   // the thread waits until the point is disarmed; at most kFaultWaitMax
};

struct FaultPlan {
  FaultAction action = FaultAction::kAbort;
  absl::Status status = absl::UnavailableError("a planned fault");  // for kFail
  uint64_t arrivals_skipped = 0;  // these pass before the plan takes effect
  uint64_t times = UINT64_MAX;    // it takes effect this often, then arrivals pass again
};

inline constexpr Duration kFaultWaitMax = std::chrono::seconds(60);

// The points of this process.
class FaultPoints {
 public:
  // Replaces the plan of `name`. No point of that name need exist yet.
  static void Arm(const std::string& name, const FaultPlan& plan);
  // Arms from text in the form of HPS_FAULT_ARM. Errors: INVALID_ARGUMENT (quotes the invalid
  // part); nothing is armed then.
  static absl::Status ArmFromText(std::string_view text);
  // Arms from the environment variable HPS_FAULT_ARM, if it is set: for a child process, in main.
  // Errors: as ArmFromText, so that a child does not run without its planned fault because of a
  // typing error.
  static absl::Status ArmFromEnvironment();
  // Resumes the threads that wait at the point.
  static void Disarm(const std::string& name);
  static void DisarmAll();

  // Whether a thread waits at `name`, armed with kWait.
  static bool IsWaiting(const std::string& name);

  // Begins to count all arrivals, also at points that are not armed.
  static void Record();
  // Arrivals by name since Record, or since the point was armed.
  static std::map<std::string, uint64_t> Arrivals();
};

}  // namespace hps
