#include "l2_redis/redis_node.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"

namespace hps {

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisNode::Acquire(Deadline deadline) {
  {
    MutexLock lock(mutex_);
    while (in_use_ == connections_max_) {
      if (!returned_.WaitUntil(mutex_, deadline) && in_use_ == connections_max_) {
        return absl::DeadlineExceededError(
            absl::StrCat("all ", connections_max_, " connections are in use"));
      }
    }
    ++in_use_;
    if (std::unique_ptr<RedisConnection> idle = TakeIdle()) return idle;
  }
  auto begun = RedisConnection::Begin(address_, credentials_);
  if (!begun.ok()) Return(nullptr);
  return begun;
}

std::unique_ptr<RedisConnection> RedisNode::TakeIdle() {
  while (!idle_.empty()) {
    std::unique_ptr<RedisConnection> connection = std::move(idle_.back());
    idle_.pop_back();
    if (connection->run_id() == run_id_ && !connection->is_stale()) return connection;
  }
  return nullptr;
}

void RedisNode::Return(std::unique_ptr<RedisConnection> connection) {
  {
    MutexLock lock(mutex_);
    --in_use_;
    if (connection != nullptr) idle_.push_back(std::move(connection));
  }
  returned_.NotifyOne();
}

bool RedisNode::IsOtherRun(const std::string& run_id) const {
  MutexLock lock(mutex_);
  return !run_id_.empty() && run_id != run_id_;
}

void RedisNode::NoteRun(const std::string& run_id) {
  MutexLock lock(mutex_);
  run_id_ = run_id;
}

void RedisNode::NoteFailure(const absl::Status& why) {
  failures_.fetch_add(1, std::memory_order_relaxed);
  const bool was_open = breaker_.is_open();
  breaker_.NoteFailure(RealClock().Now());
  if (was_open) return;
  LogWarning(absl::StrCat("redis node ", address_.Text(), ": ", std::string(why.message()),
                          ": lookups bypass it until it answers again"));
}

void RedisNode::NoteAnswer() {
  if (!breaker_.is_open()) return;
  breaker_.NoteAnswer();
  LogWarning(absl::StrCat("redis node ", address_.Text(), ": answers again"));
}

}  // namespace hps
