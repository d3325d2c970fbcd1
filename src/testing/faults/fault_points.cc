#include "testing/faults/fault_points.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fault_point.h"
#include "base/macros.h"
#include "base/mutex.h"

namespace hps {
namespace {

struct Point {
  FaultPlan plan;
  bool armed = false;
  uint64_t arrivals = 0;
  uint64_t taken = 0;    // arrivals at which the plan took effect
  uint64_t waiting = 0;  // threads that wait at the point
};

struct Registry {
  Mutex mutex;
  CondVar changed;
  std::map<std::string, Point> points HPS_GUARDED_BY(mutex);
  bool recording HPS_GUARDED_BY(mutex) = false;
  std::atomic<bool> active{false};  // whether a point is armed or recorded
};

// Never destroyed, because a background thread may reach a point while the process ends.
Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

[[noreturn]] void Die() {
  static_cast<void>(kill(getpid(), SIGKILL));
  std::_Exit(137);
}

using ArmedPoint = std::pair<std::string, FaultPlan>;

absl::Status BadText(std::string_view part, const char* why) {
  return absl::InvalidArgumentError(
      absl::StrCat("HPS_FAULT_ARM: '", std::string(part), "': ", why));
}

absl::StatusOr<FaultPlan> ParseAction(std::string_view part, std::string_view text) {
  FaultPlan plan;
  const size_t colon = text.find(':');
  const std::string_view action = text.substr(0, colon);
  if (colon != std::string_view::npos && action != "fail")
    return BadText(part, "only 'fail' takes a code");
  if (action == "abort") return plan;
  if (action == "wait") {
    plan.action = FaultAction::kWait;
    return plan;
  }
  if (action != "fail") return BadText(part, "the action is abort, wait or fail:CODE");
  plan.action = FaultAction::kFail;
  if (colon == std::string_view::npos) return plan;
  const std::string code(text.substr(colon + 1));
  for (int i = 1; i <= 16; ++i) {
    const auto candidate = static_cast<absl::StatusCode>(i);
    if (absl::StatusCodeToString(candidate) != code) continue;
    plan.status = absl::Status(candidate, "a planned fault");
    return plan;
  }
  return BadText(part, "no status code of that name");
}

absl::StatusOr<ArmedPoint> ParsePart(std::string_view part) {
  const size_t equals = part.find('=');
  if (equals == 0 || equals == std::string_view::npos) return BadText(part, "expected name=action");
  std::string_view action = part.substr(equals + 1);
  uint64_t skipped = 0;
  if (const size_t at = action.find('@'); at != std::string_view::npos) {
    const std::string_view number = action.substr(at + 1);
    const char* end = number.data() + number.size();
    const auto [rest, error] = std::from_chars(number.data(), end, skipped);
    if (error != std::errc() || rest != end) return BadText(part, "expected a number after '@'");
    action = action.substr(0, at);
  }
  HPS_ASSIGN_OR_RETURN(FaultPlan plan, ParseAction(part, action));
  plan.arrivals_skipped = skipped;
  return ArmedPoint(part.substr(0, equals), plan);
}

absl::Status WaitThere(Registry& registry, const char* name) HPS_REQUIRES(registry.mutex) {
  const Deadline deadline = DeadlineAfter(RealClock(), kFaultWaitMax);
  Point& point = registry.points[name];
  ++point.waiting;
  bool in_time = true;
  while (in_time && point.armed) in_time = registry.changed.WaitUntil(registry.mutex, deadline);
  --point.waiting;
  if (in_time) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("fault point ", name, ": nobody ended the wait"));
}

}  // namespace

void FaultPoints::Arm(const std::string& name, const FaultPlan& plan) {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  Point& point = registry.points[name];
  point.plan = plan;
  point.armed = true;
  point.arrivals = 0;
  point.taken = 0;
  registry.active.store(true, std::memory_order_relaxed);
}

absl::Status FaultPoints::ArmFromText(std::string_view text) {
  std::vector<ArmedPoint> parsed;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    HPS_ASSIGN_OR_RETURN(ArmedPoint point, ParsePart(text.substr(0, comma)));
    parsed.push_back(std::move(point));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  for (const auto& [name, plan] : parsed) Arm(name, plan);
  return absl::OkStatus();
}

void FaultPoints::Disarm(const std::string& name) {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  const auto point = registry.points.find(name);
  if (point == registry.points.end()) return;
  point->second.armed = false;
  registry.changed.NotifyAll();
}

void FaultPoints::DisarmAll() {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  for (auto& [name, point] : registry.points) point.armed = false;
  registry.active.store(registry.recording, std::memory_order_relaxed);
  registry.changed.NotifyAll();
}

bool FaultPoints::IsWaiting(const std::string& name) {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  return registry.points[name].waiting > 0;
}

void FaultPoints::Record() {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  for (auto& [name, point] : registry.points) point.arrivals = 0;
  registry.recording = true;
  registry.active.store(true, std::memory_order_relaxed);
}

std::map<std::string, uint64_t> FaultPoints::Arrivals() {
  Registry& registry = TheRegistry();
  MutexLock lock(registry.mutex);
  std::map<std::string, uint64_t> arrivals;
  for (const auto& [name, point] : registry.points) {
    if (point.arrivals > 0) arrivals[name] = point.arrivals;
  }
  return arrivals;
}

absl::Status FaultPoints::ArmFromEnvironment() {
  const char* text = std::getenv("HPS_FAULT_ARM");
  return text == nullptr ? absl::OkStatus() : ArmFromText(text);
}

absl::Status ReachFaultPoint(const char* name) {
  Registry& registry = TheRegistry();
  if (!registry.active.load(std::memory_order_relaxed)) return absl::OkStatus();
  MutexLock lock(registry.mutex);
  Point& point = registry.points[name];
  ++point.arrivals;
  const FaultPlan& plan = point.plan;
  if (!point.armed || point.arrivals <= plan.arrivals_skipped || point.taken >= plan.times)
    return absl::OkStatus();
  ++point.taken;
  switch (plan.action) {
    case FaultAction::kAbort:
      Die();
    case FaultAction::kFail:
      return absl::Status(plan.status.code(),
                          absl::StrCat("fault point ", name, ": ", plan.status.message()));
    case FaultAction::kWait:
      return WaitThere(registry, name);
  }
  return absl::OkStatus();
}

}  // namespace hps
