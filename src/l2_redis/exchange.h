// Requests of batches for one node, on one connection: sent together, answered in order.
//
// For one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "l2_redis/redis_batch.h"
#include "l2_redis/redis_node.h"
#include "l2_redis/slot_map.h"

namespace hps {

// By RedisError, of those that redirect.
using RedirectCounts = std::array<uint64_t, 3>;

class Exchange final : public ReplySink {
 public:
  // `requests` are of the batches, which outlive the exchange. The exchange returns the connection.
  Exchange(RedisNode& node, std::unique_ptr<RedisConnection> connection,
           std::span<const RedisBatch> batches, std::vector<RequestPlace> requests);
  Exchange(Exchange&&) = default;
  Exchange& operator=(Exchange&&) = delete;
  ~Exchange() override;

  // Does what it can without waiting. An error ends the exchange.
  void Advance(SlotMap& slots);
  // Ends it: the connection is closed, because it may answer later.
  void Fail(const absl::Status& why);

  bool done() const { return connection_ == nullptr; }
  int descriptor() const { return connection_->descriptor(); }
  short events() const { return connection_->events(); }
  std::string_view hint() const { return connection_->hint(); }
  RedisNode& node() const { return *node_; }
  // Why the node is to be bypassed, if it is.
  const absl::Status& failure() const { return failure_; }
  const RedirectCounts& redirects() const { return redirects_; }

  bool OnArray(ReplyPlace place, size_t count) override;
  bool OnValue(ReplyPlace place, const ReplyValue& value) override;
  bool OnEnd() override;

 private:
  void Send(SlotMap& slots);
  bool all_answered() const { return next_ == requests_.size(); }
  RequestPlace current() const { return requests_[next_]; }
  RequestSink& sink() const { return *batches_[current().batch].sink; }

  RedisNode* const node_;
  std::unique_ptr<RedisConnection> connection_;
  const std::span<const RedisBatch> batches_;
  std::vector<RequestPlace> requests_;
  bool sent_ = false;
  size_t next_ = 0;     // the request that is being answered
  size_t replies_ = 0;  // of it, so far
  bool lost_ = false;   // one of these redirects, or says that the node fails
  absl::Status failure_;
  RedirectCounts redirects_{};
};

// Sends one command and waits for its reply. Errors: those of the connection, DEADLINE_EXCEEDED,
// UNAVAILABLE (an error reply).
absl::StatusOr<Reply> AskRedis(RedisNode& node, std::string_view command, Deadline deadline);
// ... on a connection of the node, which is returned to it.
absl::StatusOr<Reply> AskRedis(RedisNode& node, std::unique_ptr<RedisConnection> connection,
                               std::string_view command, Deadline deadline);
// ... on any connection, which after an error can't be used any more; an error reply is a reply.
absl::StatusOr<Reply> AskConnection(RedisConnection& connection, std::string_view command,
                                    Deadline deadline);

// Waits until poll() has something for one of the exchanges, or the deadline.
void AwaitExchanges(std::span<Exchange> exchanges, Deadline deadline);

}  // namespace hps
