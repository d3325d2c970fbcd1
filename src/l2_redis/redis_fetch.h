// A fetch from several tables on the same servers: one round trip to each server.
//
// Each table writes the requests of its part and takes the replies to them. The client sends the
// requests of all parts together.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "l2_redis/redis_batch.h"
#include "l2_redis/redis_client.h"
#include "tier/lossy_tier.h"

namespace hps {

// One table's part of a fetch, which takes the replies to its requests.
class RedisFetchPart : public RequestSink {
 public:
  // What is asked. The part owns the requests and their bytes.
  virtual RedisBatch Requests() = 0;
  // After the last reply, on the thread that began the part.
  virtual void End() = 0;
};

// A table of level 2 on Redis.
class RedisFetchTable : public LossyTable {
 public:
  // The client's time-out bounds every wait, whatever the caller's deadline: to give up an answer
  // half-way would cost the node's rows.
  absl::StatusOr<FetchCounts> Fetch(const FetchBatch& batch, Deadline deadline) final;
  bool can_block() const final { return true; }
  DirectReadable* direct() final { return nullptr; }

  virtual RedisClient& client() const = 0;
  // Every outcome of `batch`, which outlives the part, is kMiss. `number` is the part's in its
  // fetch. REQUIRES: the client's slots are prepared.
  virtual std::unique_ptr<RedisFetchPart> BeginFetch(const FetchBatch& batch, size_t number) = 0;
};

// As LossyTier::Fetch. REQUIRES: every table is a RedisFetchTable of `client`.
void FetchFromRedis(RedisClient& client, std::span<TableFetch> fetches);

}  // namespace hps
