// One table of a level 2 on Redis that several nodes share: all rows that were imported under one
// import id (docs/redis.md, "Rows that several nodes share").
//
// Nothing that another node or a server does makes an answer older or wrong: each answer of a
// server says by itself, in the partition's mark and in the rows, how far in the stream it is
// right, and StreamFence compares that with level 3 of this node. So no answer of a server and no
// loss of one has to be noted, as RedisTable does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "l2_redis/redis_client.h"
#include "l2_redis/redis_fetch.h"
#include "l2_redis/redis_pieces.h"
#include "l2_redis/redis_script.h"
#include "l2_redis/row_names.h"
#include "l2_redis/shared_value.h"
#include "l2_redis/stream_fence.h"
#include "l2_redis/write_results.h"
#include "tier/fence.h"
#include "tier/lossy_tier.h"
#include "tier/shared_table.h"

namespace hps {

class SharedRedisTable final : public RedisFetchTable, public SharedTable {
 public:
  struct Options {
    std::string key_prefix;
    size_t partition_count = 0;    // of Redis: a table's rows are divided among so many hash slots
    uint64_t expire_after_ms = 0;  // 0 = rows do not expire
    bool writes_changes = true;    // EndChange writes them; else only WriteChange does
    // Of each insertion, of each EndChange, and of each script of a WriteChange: a long change is
    // many scripts, and the caller repeats one that ended before its last.
    Duration write_timeout{};
  };

  // The table does not change in level 3 from `start` until this one gets the changes.
  // REQUIRES: it has an import id.
  SharedRedisTable(std::shared_ptr<RedisClient> client, const Options& options,
                   const SharedTableStart& start);
  SharedRedisTable(const SharedRedisTable&) = delete;
  SharedRedisTable& operator=(const SharedRedisTable&) = delete;

  RedisClient& client() const override { return *client_; }
  std::unique_ptr<RedisFetchPart> BeginFetch(const FetchBatch& batch, size_t number) override;
  absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) override;
  // These three do nothing: BeginChange and EndChange make changes.
  absl::StatusOr<uint64_t> Update(const RowBatch& batch) override;
  absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) override;
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override;
  // For this node: rows that are held now are taken no longer. The others keep them.
  absl::Status Clear() override;
  LevelStatistics Statistics() const override { return counters_.Statistics(); }

  void BeginChange(std::span<const Key> keys, ApplyEpoch epoch,
                   std::span<const StreamPosition> positions) override;
  void EndChange(const DurableWrite& write) override;
  // Also returns OK if some servers do not take the change, provided that others do and that each
  // server that does not has taken no change for kRetryFor. One server must not hold up the changes
  // of the others. The marks of its partitions stay where they are. So no node takes a row there
  // whose change is missing. The next change that the server takes begins beyond its marks and
  // therefore removes its rows (shared_scripts.h). Counted
  // (RemoteLevelStatistics::changes_given_up). While no server takes changes, nothing is given up.
  absl::Status WriteChange(const SharedChange& change) override;
  static constexpr Duration kRetryFor = std::chrono::seconds(2);
  std::vector<StreamPosition> Positions() const override;

 private:
  class FetchPart;
  // Changes that one script makes in each partition of Redis.
  struct Step {
    std::vector<Key> keys{};
    std::vector<SharedRow> rows{};
    std::vector<Version> from{};  // by partition of the stream; 0 = no change in it
    std::vector<Version> to{};
  };
  // Writes a script's call for one piece.
  using WriteCall = std::function<void(const RedisScriptCall& call, const RedisPiece& piece)>;

  SharedIdentity IdentityOf(Key key) const { return {.table = table_hash_, .key = key}; }
  void AppendRow(Key key, const SharedRow& row, std::string& out) const;
  void RemoveDamaged(std::span<const Key> keys);
  // Runs a script for each piece of the work. Returns the partitions of Redis in which it was not
  // run.
  std::vector<size_t> RunScript(const RedisScript& script, const WriteCall& write,
                                Deadline deadline, RedisPieces& work, RedisCountSink& sink);
  void InsertStep(const RowBatch& batch, ApplyEpoch epoch, Deadline deadline, InsertCounts& counts);
  std::vector<Step> StepsOf(const SharedChange& change,
                            const StreamFence::Generation& generation) const;
  void RunStep(const Step& step, Deadline deadline, std::vector<bool>& lacks);
  absl::Status WriteSteps(const SharedChange& change, Deadline end);
  absl::Status JudgeWrite(const std::vector<bool>& lacks);
  Deadline WriteEnd() const { return DeadlineAfter(RealClock(), options_.write_timeout); }

  const std::shared_ptr<RedisClient> client_;
  const Options options_;
  const size_t row_bytes_;
  const uint64_t table_hash_;
  const RowNames names_;
  Fence fence_;
  StreamFence stream_;
  Mutex mutex_;
  // By partition of Redis: since when it takes no changes while others do; TimePoint() = it does,
  // or none does.
  std::vector<TimePoint> lacking_since_ HPS_GUARDED_BY(mutex_);
  RedisTableCounters counters_;
};

}  // namespace hps
