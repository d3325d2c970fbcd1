// A client of one Redis server or of a Redis Cluster: sends commands to the nodes that have their
// slots, to all nodes at once from the calling thread.
//
// The batches of a call cost one round trip per node. Nothing is repeated: a request that is not
// answered is lost, and its slot's epoch ends (slot_map.h). The client then learns the slots again,
// if that may help, and bypasses a node that failed (base/circuit_breaker.h).
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "hps/statistics.h"
#include "l2_redis/exchange.h"
#include "l2_redis/redis_batch.h"
#include "l2_redis/redis_node.h"
#include "l2_redis/slot_map.h"

namespace hps {

class RedisClient {
 public:
  struct Options {
    std::vector<RedisAddress> nodes;  // of a cluster, some that are asked for the others
    bool cluster = false;
    RedisCredentials credentials;
    size_t connections_per_node = 4;
    Duration timeout{};  // of each wait
  };

  explicit RedisClient(Options options);
  RedisClient(const RedisClient&) = delete;
  RedisClient& operator=(const RedisClient&) = delete;

  // Learns the slots if they are not known or outdated. To be called before the requests are
  // written, because it may end epochs. Asks the nodes one after the other: first those that are
  // not bypassed, then the others, each group until the time-out has passed. Each wait for a node
  // lasts at most for the time-out, and nothing lasts beyond `deadline`.
  void PrepareSlots(Deadline deadline);

  // Waits for connections and then for answers, each time at most for the time-out and not beyond
  // `deadline`. Sets `answered` of each request. Then prepares the slots, as PrepareSlots does.
  void Execute(std::span<const RedisBatch> batches, Deadline deadline);
  void Execute(const RedisBatch& batch, Deadline deadline) {
    Execute(std::span(&batch, 1), deadline);
  }

  SlotMap& slots() { return slots_; }

  // A change of a shared table goes on without a server that did not take it. For Statistics.
  void NoteChangeGivenUp() { changes_given_up_.fetch_add(1, std::memory_order_relaxed); }

  RemoteLevelStatistics Statistics() const;

 private:
  // Nodes that are known at a time; a cluster has at most 1,000.
  static constexpr size_t kNodesMax = 2048;
  // Between two looks at the slots, of which many calls may want one.
  static constexpr Duration kLearnInterval = std::chrono::milliseconds(250);
  // If replicas are read, the slots are learnt again after this time: a replica that comes or goes
  // causes no redirect that would tell of it.
  static constexpr Duration kReplicasInterval = std::chrono::seconds(2);

  // The requests for one node; none are sent if its circuit breaker does not admit them.
  struct NodeGroup {
    RedisNode* node = nullptr;
    bool admitted = false;
    std::vector<RequestPlace> requests{};
  };

  static NodeGroup& GroupOf(RedisNode* node, std::vector<NodeGroup>& groups);
  RedisNode* ChooseNode(const RedisBatch& batch, RedisRequest& request,
                        std::vector<NodeGroup>& groups) const;
  std::vector<NodeGroup> GroupByNode(std::span<const RedisBatch> batches) const;
  std::vector<Exchange> BeginExchanges(std::span<const RedisBatch> batches, Deadline deadline);
  void RunExchanges(std::vector<Exchange>& exchanges, Deadline deadline);
  void NoteOutcome(const Exchange& exchange);
  void NoteFailure(RedisNode& node, const absl::Status& why);
  // The time-out from now on, or `deadline` if that is earlier.
  Deadline WaitEnd(Deadline deadline) const;
  void LearnSlots(Deadline deadline);
  absl::Status LearnSlotsFromAny(bool bypassed, Deadline deadline) HPS_REQUIRES(learn_mutex_);
  // Errors: CANCELLED: the node is not to blame.
  absl::Status LearnSlotsFrom(RedisNode& node, Deadline deadline);
  // Null if there are too many.
  RedisNode* NodeAt(const RedisAddress& address);
  std::vector<RedisNode*> Nodes() const;
  bool HasSlots(const RedisNode* node) const;

  const Options options_;
  const uint32_t
      replica_choice_;  // among a slot's replicas, so that processes choose different ones
  SlotMap slots_;
  mutable Mutex nodes_mutex_;
  std::vector<std::unique_ptr<RedisNode>> nodes_ HPS_GUARDED_BY(nodes_mutex_);
  Mutex learn_mutex_;  // held by the one call that learns the slots
  size_t next_asked_ HPS_GUARDED_BY(learn_mutex_) = 0;
  TimePoint learn_again_ HPS_GUARDED_BY(learn_mutex_){};
  std::atomic<bool> slots_outdated_{false};
  std::atomic<TimePoint> replicas_until_{TimePoint::max()};  // when the replicas are outdated, too
  std::array<std::atomic<uint64_t>, std::tuple_size_v<RedirectCounts>> redirects_{};
  std::atomic<uint64_t> slots_learnt_{0};
  std::atomic<uint64_t> changes_given_up_{0};
  std::array<std::atomic<uint64_t>, kStatusCodeCount> failures_by_code_{};
};

}  // namespace hps
