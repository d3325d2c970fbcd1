#include "l2_redis/redis_client.h"

#include <algorithm>
#include <functional>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "base/macros.h"
#include "l2_redis/command_writer.h"

namespace hps {

RedisClient::RedisClient(Options options)
    : options_(std::move(options)), replica_choice_(std::random_device()()) {
  HPS_CHECK(!options_.nodes.empty() && (options_.cluster || options_.nodes.size() == 1));
  for (const RedisAddress& address : options_.nodes) NodeAt(address);
  slots_outdated_ = options_.cluster;
  if (options_.cluster) return;
  RedisNode* const only = Nodes().front();
  for (size_t slot = 0; slot < kRedisSlotCount; ++slot)
    slots_.SetOwner(static_cast<uint16_t>(slot), only);
}

// The wait for connections and the wait for answers each have the whole time-out. Otherwise a wait
// for a connection to one node could use up the time in which another node answers, and that node
// would seem to fail.
void RedisClient::Execute(std::span<const RedisBatch> batches, Deadline deadline) {
  std::vector<Exchange> exchanges = BeginExchanges(batches, WaitEnd(deadline));
  RunExchanges(exchanges, deadline);
  for (const Exchange& exchange : exchanges) NoteOutcome(exchange);
  for (const RedisBatch& batch : batches) {
    for (const RedisRequest& request : batch.requests) {
      if (request.answered || batch.unanswered == Unanswered::kNothing) continue;
      if (request.sent || batch.unanswered == Unanswered::kLeavesRows)
        slots_.EndEpoch(request.slot, request.epoch);
    }
  }
  PrepareSlots(deadline);
}

Deadline RedisClient::WaitEnd(Deadline deadline) const {
  return std::min(deadline, DeadlineAfter(RealClock(), options_.timeout));
}

RedisClient::NodeGroup& RedisClient::GroupOf(RedisNode* node, std::vector<NodeGroup>& groups) {
  const auto found = std::ranges::find(groups, node, &NodeGroup::node);
  if (found != groups.end()) return *found;
  return groups.emplace_back(
      NodeGroup{.node = node, .admitted = node->breaker().Admits(RealClock().Now())});
}

// A replica that is bypassed leaves its requests to the owner. Null: none is known.
RedisNode* RedisClient::ChooseNode(const RedisBatch& batch, RedisRequest& request,
                                   std::vector<NodeGroup>& groups) const {
  RedisNode* const owner = slots_.Owner(request.slot);
  RedisNode* const replica = batch.reads_replicas ? slots_.Replica(request.slot) : nullptr;
  request.to_replica = owner != nullptr && replica != nullptr && GroupOf(replica, groups).admitted;
  return request.to_replica ? replica : owner;
}

std::vector<RedisClient::NodeGroup> RedisClient::GroupByNode(
    std::span<const RedisBatch> batches) const {
  std::vector<NodeGroup> groups;
  for (uint32_t batch = 0; batch < batches.size(); ++batch) {
    for (uint32_t number = 0; number < batches[batch].requests.size(); ++number) {
      RedisRequest& request = batches[batch].requests[number];
      request.answered = false;
      request.sent = false;
      RedisNode* const node = ChooseNode(batches[batch], request, groups);
      if (node != nullptr)
        GroupOf(node, groups).requests.push_back({.batch = batch, .request = number});
    }
  }
  return groups;
}

// All calls acquire their connections in one order of the nodes. So no two calls wait for each
// other, each for a connection that the other holds.
std::vector<Exchange> RedisClient::BeginExchanges(std::span<const RedisBatch> batches,
                                                  Deadline deadline) {
  std::vector<NodeGroup> groups = GroupByNode(batches);
  std::ranges::sort(groups, std::less<>(), &NodeGroup::node);
  std::vector<Exchange> exchanges;
  exchanges.reserve(groups.size());
  for (auto& [node, admitted, requests] : groups) {
    if (!admitted) {
      slots_outdated_ = options_.cluster;
      continue;
    }
    absl::StatusOr<std::unique_ptr<RedisConnection>> connection = node->Acquire(deadline);
    if (connection.ok()) {
      for (const RequestPlace place : requests) RequestAt(batches, place).sent = true;
      exchanges.emplace_back(*node, *std::move(connection), batches, std::move(requests));
    } else if (!absl::IsDeadlineExceeded(connection.status())) {
      NoteFailure(*node, connection.status());
      slots_outdated_ = options_.cluster;
    }
  }
  return exchanges;
}

void RedisClient::RunExchanges(std::vector<Exchange>& exchanges, Deadline deadline) {
  const Deadline timeout = DeadlineAfter(RealClock(), options_.timeout);
  const Deadline end = std::min(deadline, timeout);
  for (;;) {
    bool waiting = false;
    for (Exchange& exchange : exchanges) {
      if (!exchange.done()) exchange.Advance(slots_);
      waiting |= !exchange.done();
    }
    if (!waiting) return;
    if (RealClock().Now() >= end) break;
    AwaitExchanges(exchanges, end);
  }
  // A node that did not get the whole time-out, because the caller had no more, is not to blame.
  const bool is_late = timeout <= deadline;
  for (Exchange& exchange : exchanges) {
    if (!exchange.done() && !is_late) {
      exchange.Fail(absl::CancelledError("the caller's time was over"));
    } else if (!exchange.done()) {
      exchange.Fail(absl::DeadlineExceededError(absl::StrCat(
          "no answer within ",
          std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout).count(), " ms",
          std::string(exchange.hint()))));
    }
  }
}

void RedisClient::NoteOutcome(const Exchange& exchange) {
  const bool is_of_cluster = exchange.redirects()[static_cast<size_t>(RedisError::kMoved)] > 0;
  if (absl::IsCancelled(exchange.failure())) {
    // Nothing is known of the node.
  } else if (exchange.failure().ok() && is_of_cluster && !options_.cluster) {
    NoteFailure(exchange.node(),
                absl::FailedPreconditionError("it is a server of a cluster: set `cluster = true`"));
  } else if (exchange.failure().ok()) {
    exchange.node().NoteAnswer();
  } else {
    NoteFailure(exchange.node(), exchange.failure());
    slots_outdated_ = options_.cluster;
  }
  for (size_t kind = 0; kind < redirects_.size(); ++kind) {
    const uint64_t count = exchange.redirects()[kind];
    if (count == 0) continue;
    redirects_[kind].fetch_add(count, std::memory_order_relaxed);
    if (static_cast<RedisError>(kind) == RedisError::kMoved) slots_outdated_ = options_.cluster;
  }
}

void RedisClient::NoteFailure(RedisNode& node, const absl::Status& why) {
  failures_by_code_[static_cast<size_t>(why.code())].fetch_add(1, std::memory_order_relaxed);
  node.NoteFailure(why);
}

void RedisClient::PrepareSlots(Deadline deadline) {
  if (slots_outdated_ || RealClock().Now() >= replicas_until_.load(std::memory_order_relaxed))
    LearnSlots(deadline);
}

// Only one call learns the slots at a time, and none does so again within kLearnInterval: if many
// calls are redirected at once, the first of them learns for all.
void RedisClient::LearnSlots(Deadline deadline) {
  if (!learn_mutex_.TryLock()) return;
  if (RealClock().Now() >= learn_again_) {
    absl::Status learnt = LearnSlotsFromAny(/*bypassed=*/false, deadline);
    if (!learnt.ok()) learnt = LearnSlotsFromAny(/*bypassed=*/true, deadline);
    learn_again_ = RealClock().Now() + kLearnInterval;
    if (learnt.ok()) {
      if (options_.credentials.reads_replicas)
        replicas_until_.store(RealClock().Now() + kReplicasInterval, std::memory_order_relaxed);
      slots_learnt_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  learn_mutex_.Unlock();
}

// Asks the nodes in turn until one answers. `bypassed`: asks only the nodes that are bypassed and
// whose rest is over; else only the others.
absl::Status RedisClient::LearnSlotsFromAny(bool bypassed, Deadline deadline) {
  const std::vector<RedisNode*> nodes = Nodes();
  const Deadline end = WaitEnd(deadline);
  absl::Status learnt = absl::UnavailableError("no node answers");
  for (size_t asked = 0; asked < nodes.size() && !learnt.ok(); ++asked) {
    RedisNode& node = *nodes[next_asked_++ % nodes.size()];
    const TimePoint now = RealClock().Now();
    if (now >= end) break;
    if (node.breaker().is_open() != bypassed || !node.breaker().Admits(now)) continue;
    learnt = LearnSlotsFrom(node, deadline);
    if (!learnt.ok() && !absl::IsCancelled(learnt)) NoteFailure(node, learnt);
  }
  return learnt;
}

// A late answer is a failure of the node only if the node had the whole time-out for it. The wait
// for a free connection does not count.
absl::Status RedisClient::LearnSlotsFrom(RedisNode& node, Deadline deadline) {
  absl::StatusOr<std::unique_ptr<RedisConnection>> connection = node.Acquire(WaitEnd(deadline));
  if (absl::IsDeadlineExceeded(connection.status()))
    return absl::CancelledError(connection.status().message());
  HPS_RETURN_IF_ERROR(connection.status());
  std::string command;
  AppendCommand({"CLUSTER", "SLOTS"}, command);
  const Deadline timeout = DeadlineAfter(RealClock(), options_.timeout);
  const absl::StatusOr<Reply> asked =
      AskRedis(node, *std::move(connection), command, std::min(timeout, deadline));
  if (absl::IsDeadlineExceeded(asked.status()) && deadline < timeout)
    return absl::CancelledError("the caller's time was over");
  HPS_ASSIGN_OR_RETURN(const Reply reply, asked);
  HPS_ASSIGN_OR_RETURN(const std::vector<SlotRange> ranges,
                       ParseClusterSlots(reply, node.address()));
  // It has left the cluster, or was never in it.
  if (ranges.empty()) return absl::CancelledError("the node knows no slots");
  std::vector<RedisNode*> owners(kRedisSlotCount);
  std::vector<RedisNode*> replicas(kRedisSlotCount);
  for (const SlotRange& range : ranges) {
    std::fill_n(owners.begin() + range.first, range.slot_count(), NodeAt(range.master));
    if (!options_.credentials.reads_replicas || range.replicas.empty()) continue;
    const RedisAddress& chosen = range.replicas[replica_choice_ % range.replicas.size()];
    std::fill_n(replicas.begin() + range.first, range.slot_count(), NodeAt(chosen));
  }
  for (size_t slot = 0; slot < kRedisSlotCount; ++slot) {
    slots_.SetOwner(static_cast<uint16_t>(slot), owners[slot]);
    slots_.SetReplica(static_cast<uint16_t>(slot), replicas[slot]);
  }
  // No request goes to a slot without an owner, so no redirect would tell later that the slot has
  // an owner: the slots are learnt again.
  slots_outdated_ = std::ranges::find(owners, nullptr) != owners.end();
  return absl::OkStatus();
}

RedisNode* RedisClient::NodeAt(const RedisAddress& address) {
  MutexLock lock(nodes_mutex_);
  for (const std::unique_ptr<RedisNode>& node : nodes_) {
    if (node->address() == address) return node.get();
  }
  if (nodes_.size() == kNodesMax) {
    LogError("redis: too many nodes have been seen; restart to forget those that are gone");
    return nullptr;
  }
  nodes_.push_back(
      std::make_unique<RedisNode>(address, options_.credentials, options_.connections_per_node));
  return nodes_.back().get();
}

std::vector<RedisNode*> RedisClient::Nodes() const {
  MutexLock lock(nodes_mutex_);
  std::vector<RedisNode*> nodes;
  for (const std::unique_ptr<RedisNode>& node : nodes_) nodes.push_back(node.get());
  return nodes;
}

bool RedisClient::HasSlots(const RedisNode* node) const {
  for (size_t slot = 0; slot < kRedisSlotCount; ++slot) {
    const auto number = static_cast<uint16_t>(slot);
    if (slots_.Owner(number) == node || slots_.Replica(number) == node) return true;
  }
  return false;
}

RemoteLevelStatistics RedisClient::Statistics() const {
  RemoteLevelStatistics statistics;
  const std::vector<RedisNode*> nodes = Nodes();
  const bool is_any_known = std::ranges::any_of(nodes, [this](auto* n) { return HasSlots(n); });
  for (RedisNode* const node : nodes) {
    if (is_any_known && !HasSlots(node)) continue;
    statistics.nodes.push_back({.address = node->address().Text(),
                                .bypassed = node->breaker().is_open(),
                                .failures = node->failures()});
  }
  for (size_t code = 0; code < kStatusCodeCount; ++code) {
    statistics.failures_by_code[code] = failures_by_code_[code].load(std::memory_order_relaxed);
    statistics.failures += statistics.failures_by_code[code];
  }
  statistics.moved = redirects_[static_cast<size_t>(RedisError::kMoved)];
  statistics.ask = redirects_[static_cast<size_t>(RedisError::kAsk)];
  statistics.try_again = redirects_[static_cast<size_t>(RedisError::kTryAgain)];
  statistics.slot_maps_learnt = slots_learnt_;
  statistics.changes_given_up = changes_given_up_;
  return statistics;
}

}  // namespace hps
