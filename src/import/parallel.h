// Work cut into numbered steps that run on an executor while the caller waits and reports.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "base/executor.h"

namespace hps {

// Runs step(i, failed) once for each i < step_count, at most `lane_count` of them at a time, begun
// in ascending order. `failed` turns true when any step has failed: a long step looks at it now and
// then and may end early with any status. `tick` is called from the calling thread a few times a
// second; what it throws ends the steps and is thrown on. Returns when no step runs any more.
// Errors: the first error that occurred; RESOURCE_EXHAUSTED where a step had no memory;
// RESOURCE_EXHAUSTED or UNAVAILABLE from the executor.
struct StepPlan {
  size_t step_count = 0;
  size_t lane_count = 1;
  std::function<absl::Status(size_t step, const std::atomic<bool>& failed)> step;
  std::function<void()> tick;
};
absl::Status RunSteps(Executor& executor, const StepPlan& plan);

}  // namespace hps
