// Runs numbered steps on an executor while the caller waits and reports progress.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

#include "absl/status/status.h"
#include "base/executor.h"

namespace hps {

// Runs step(i, failed) once for each i < step_count, begun in ascending order, at most `lane_count`
// steps at a time. `failed` becomes true when any step has failed; a long step checks it now and
// then and may then end with any status. The calling thread calls `tick` a few times a second. An
// exception from `tick` ends the steps and is rethrown. Returns when no step is running. Errors:
// the first error of a step; RESOURCE_EXHAUSTED if a step had no memory; RESOURCE_EXHAUSTED or
// UNAVAILABLE from the executor.
struct StepPlan {
  size_t step_count = 0;
  size_t lane_count = 1;
  std::function<absl::Status(size_t step, const std::atomic<bool>& failed)> step;
  std::function<void()> tick;
};
absl::Status RunSteps(Executor& executor, const StepPlan& plan);

}  // namespace hps
