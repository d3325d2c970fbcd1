// One table of level 2 on Redis.
//
// A fetch is one round trip to each node. A row that can't be asked for is a miss: nothing that
// happens to a server is an error of this table (docs/redis.md, "Why no row goes back").
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "l2_redis/change_numbers.h"
#include "l2_redis/redis_client.h"
#include "l2_redis/redis_fetch.h"
#include "l2_redis/redis_pieces.h"
#include "l2_redis/redis_script.h"
#include "l2_redis/row_names.h"
#include "l2_redis/row_value.h"
#include "l2_redis/write_results.h"
#include "tier/fence.h"
#include "tier/lossy_tier.h"

namespace hps {

// Replaces rows of lower versions.
const RedisScript& RedisUpdateScript();

class RedisTable final : public RedisFetchTable {
 public:
  struct Options {
    std::string key_prefix;
    size_t partition_count = 0;
    Incarnation incarnation = 0;
    size_t row_bytes = 0;
    uint64_t expire_after_ms = 0;  // 0 = rows do not expire
    Duration write_timeout{};      // of each Insert, Update and Erase
    bool reads_replicas = false;
  };

  RedisTable(std::shared_ptr<RedisClient> client, const Options& options);
  RedisTable(const RedisTable&) = delete;
  RedisTable& operator=(const RedisTable&) = delete;

  RedisClient& client() const override { return *client_; }
  std::unique_ptr<RedisFetchPart> BeginFetch(const FetchBatch& batch, size_t number) override;
  // These three end within the time-out of writes. What Insert has not sent by then is dropped.
  // What Update and Erase have not changed by then is forgotten: the rows of its partitions get
  // other names.
  absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) override;
  absl::StatusOr<uint64_t> Update(const RowBatch& batch) override;
  absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) override;
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override;
  // The rows stay in Redis, under names that are never used again.
  absl::Status Clear() override;
  LevelStatistics Statistics() const override { return counters_.Statistics(); }

 private:
  class FetchPart;
  class InsertSink;
  // The state of the changes to a piece's rows when the piece was begun.
  struct Changes {
    uint64_t ends = 0;    // of generations before the piece's
    uint64_t losses = 0;  // those of them for a lost change
    uint64_t seen = 0;    // the last change that is known
    uint64_t made = 0;    // the one that is made
  };
  struct Work : RedisPieces {
    std::vector<Changes> changes;  // [pieces]
  };

  uint64_t EndsOf(size_t partition, uint64_t epoch) const;
  uint64_t GenerationOf(uint64_t ends) const;
  void NoteChange(size_t partition, uint64_t ends, uint64_t number);
  RowIdentity IdentityOf(const RedisPiece& piece, Key key) const;
  // Divides the keys into pieces and names their rows.
  void BeginWork(std::span<const Key> keys, size_t keys_max, Work& work) const;
  void NameRows(Work& work) const;
  Deadline WriteEnd() const { return DeadlineAfter(RealClock(), options_.write_timeout); }
  bool ReadsReplicas() const;
  void ForgetRows(std::span<const Key> keys);
  void WriteInserts(const RowBatch& batch, const Fence::Insertion& insertion, Work& work,
                    InsertCounts& counts) const;
  void WriteUpdates(const RowBatch& batch, bool with_text, Work& work);
  void AppendValue(const RowBatch& batch, size_t i, const RedisPiece& piece,
                   std::string& out) const;
  absl::StatusOr<uint64_t> UpdateStep(const RowBatch& batch, Deadline deadline);
  void EraseWithoutRoom(std::span<const Key> keys, Deadline deadline);

  const std::shared_ptr<RedisClient> client_;
  const Options options_;
  const RowNames names_;
  Fence fence_;
  const uint64_t nonce_;
  // What ends the names of all rows, of a slot's (its epoch), or of a partition's (a lost change).
  std::atomic<uint64_t> clears_{0};
  ChangeNumbers changes_;
  // A replica was seen to lag: the masters are read until then.
  std::atomic<TimePoint> masters_until_{TimePoint()};
  RedisTableCounters counters_;
};

}  // namespace hps
