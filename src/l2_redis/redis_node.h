// One Redis server: its bounded pool of connections, and whether it is asked at all.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/circuit_breaker.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "l2_redis/redis_connection.h"

namespace hps {

class RedisNode {
 public:
  RedisNode(RedisAddress address, RedisCredentials credentials, size_t connections_max)
      : address_(std::move(address)),
        credentials_(std::move(credentials)),
        connections_max_(connections_max) {}
  RedisNode(const RedisNode&) = delete;
  RedisNode& operator=(const RedisNode&) = delete;

  const RedisAddress& address() const { return address_; }
  CircuitBreaker& breaker() { return breaker_; }

  // An idle connection, or a new one, whose handshake the caller drives. Waits while all are in
  // use. The caller passes it back to Return. Errors: UNAVAILABLE (it can't be reached),
  // DEADLINE_EXCEEDED (all are in use).
  absl::StatusOr<std::unique_ptr<RedisConnection>> Acquire(Deadline deadline);
  // `connection` is null if it was closed.
  void Return(std::unique_ptr<RedisConnection> connection);

  // Whether `run_id`, of a new connection, is another run of the server's process than the one that
  // was noted. The new run may hold rows of any age.
  bool IsOtherRun(const std::string& run_id) const;
  void NoteRun(const std::string& run_id);

  // Opens and closes the circuit breaker; logs the first failure and the recovery.
  void NoteFailure(const absl::Status& why);
  void NoteAnswer();
  uint64_t failures() const { return failures_.load(std::memory_order_relaxed); }

 private:
  std::unique_ptr<RedisConnection> TakeIdle() HPS_REQUIRES(mutex_);

  const RedisAddress address_;
  const RedisCredentials credentials_;
  const size_t connections_max_;
  CircuitBreaker breaker_;
  std::atomic<uint64_t> failures_{0};
  mutable Mutex mutex_;
  CondVar returned_;
  std::vector<std::unique_ptr<RedisConnection>> idle_ HPS_GUARDED_BY(mutex_);
  size_t in_use_ HPS_GUARDED_BY(mutex_) = 0;
  std::string run_id_ HPS_GUARDED_BY(mutex_);
};

}  // namespace hps
