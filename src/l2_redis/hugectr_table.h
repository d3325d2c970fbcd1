// One table of level 2 whose rows HugeCTR HPS wrote into Redis (l2_redis/hugectr_names.h). It is
// read, and nothing is written: not what lookups found below, and no change.
//
// Such a row has no version, so nothing tells an older row from a newer one. The table must not
// change while it is used: an import id refuses direct changes, the configuration an update stream.
// A table that has changed since its import is not opened (redis_tier.cc). If one changes later all
// the same, the calls that would change this level fail, and lookups bypass it from then on.
//
// A fetch is one round trip to each node. A row that can't be asked for is a miss, and so is one of
// another size than the table's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "l2_redis/redis_client.h"
#include "l2_redis/redis_fetch.h"
#include "l2_redis/row_names.h"
#include "tier/lossy_tier.h"

namespace hps {

class HugectrTable final : public RedisFetchTable {
 public:
  struct Options {
    std::string table;             // "<model>/<table>"
    uint32_t partition_count = 0;  // HugeCTR's num_partitions
    size_t row_bytes = 0;
    bool reads_replicas = false;
  };

  HugectrTable(std::shared_ptr<RedisClient> client, const Options& options);

  RedisClient& client() const override { return *client_; }
  std::unique_ptr<RedisFetchPart> BeginFetch(const FetchBatch& batch, size_t number) override;
  // Takes nothing.
  absl::StatusOr<InsertCounts> Insert(const RowBatch& batch, ApplyEpoch epoch) override;
  // The following are FAILED_PRECONDITION: the caller bypasses a table that it can't change.
  absl::StatusOr<uint64_t> Update(const RowBatch& batch) override;
  absl::StatusOr<uint64_t> Erase(std::span<const Key> keys) override;
  absl::Status RaiseWatermarks(std::span<const Key> keys, ApplyEpoch epoch,
                               Deadline deadline) override;
  absl::Status Clear() override;
  LevelStatistics Statistics() const override { return {}; }

 private:
  class FetchPart;
  // A hash, and the slot that its name has.
  struct Partition {
    std::string name;
    uint16_t slot = 0;
  };
  // A request's keys: positions first .. first + count of the groups.
  struct Piece {
    uint32_t first = 0;
    uint32_t count = 0;
  };
  // What a batch is made of. Reused: each thread has one for each part of a fetch.
  struct Work {
    KeyGroups groups;
    std::vector<Piece> pieces;
    std::vector<RedisRequest> requests;
    std::string bytes;
  };

  static Work& ThreadWork(size_t part);
  void WriteFetches(std::span<const Key> keys, Work& work) const;

  const std::shared_ptr<RedisClient> client_;
  const Options options_;
  std::vector<Partition> partitions_;
};

}  // namespace hps
