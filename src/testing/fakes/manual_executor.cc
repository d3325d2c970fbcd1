#include "testing/fakes/manual_executor.h"

#include "base/macros.h"

namespace hps {

absl::Status ManualExecutor::Post(Task* task) {
  if (queue_.size() >= queue_max_)
    return absl::ResourceExhaustedError("manual executor: the queue is full");
  queue_.push_back(task);
  return absl::OkStatus();
}

bool ManualExecutor::Await(Latch& latch, Deadline deadline) {
  while (!latch.IsOpen() && !latch.IsInterrupted() && !held_ && !queue_.empty() &&
         clock_.Now() < deadline) {
    RunOne();
  }
  if (latch.IsOpen()) return true;
  if (latch.IsInterrupted()) return false;
  HPS_CHECK(deadline != kNoDeadline);  // it would never return
  if (clock_.Now() < deadline) clock_.Advance(deadline - clock_.Now());
  return false;
}

void ManualExecutor::RunOne() {
  HPS_CHECK(!queue_.empty());
  const size_t index = in_order_ ? 0 : random_() % queue_.size();
  Task* task = queue_[index];
  queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(index));
  task->Run();
}

void ManualExecutor::RunAll() {
  while (!queue_.empty()) RunOne();
}

}  // namespace hps
