// Tables of HugeCTR HPS in Redis, read as the source of an import: one server or a cluster, which
// it finds out. Reads only, by SCAN and HSCAN in pieces, never by KEYS or HGETALL.
//
// HSCAN's cursor means something to one run of one server. So a part whose server ends, restarts or
// gives its slot to another one is read from its beginning again, from where it is then.
//
// For one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "l2_redis/redis_session.h"
#include "tier/foreign_cache.h"

namespace hps {

class HugectrRedis final : public ForeignCache {
 public:
  struct Options {
    std::string url;  // for messages
    RedisAddress address;
    RedisCredentials credentials;
    uint32_t partition_count = 8;  // of each table
    Duration timeout{};            // of each command
    // A part is read again until this long after it failed first.
    Duration retry_for{};
  };

  // Lists the tables of all servers. Errors: UNAVAILABLE (also if a slot of the cluster has no
  // server), DEADLINE_EXCEEDED, PERMISSION_DENIED, UNAUTHENTICATED, DATA_LOSS (no reply of Redis),
  // INVALID_ARGUMENT (no table, or a hash with HugeCTR's prefix and another name).
  static absl::StatusOr<std::unique_ptr<HugectrRedis>> Open(Options options);

  const std::vector<std::string>& tables() const override { return tables_; }
  absl::StatusOr<uint32_t> PartCount(const std::string& table) override;
  absl::Status ReadPart(const std::string& table, uint32_t part, ForeignRecordSink& sink) override;

 private:
  explicit HugectrRedis(Options options) : options_(std::move(options)) {}

  RedisSession& SessionOf(const RedisAddress& address);
  absl::Status LearnNodes();
  absl::Status ListTables();
  absl::Status ListTablesOf(RedisSession& session, std::map<std::string, uint32_t>& partitions);
  // Reads the hash from its beginning to its end, from one run of one server. `first` is asked
  // first, and may name another one.
  absl::Status ReadHash(const RedisAddress& first, const std::string& hash,
                        ForeignRecordSink& sink);

  const Options options_;
  std::vector<RedisAddress> nodes_;  // the server, or the masters of the cluster
  std::map<std::string, std::unique_ptr<RedisSession>> sessions_;  // by address
  std::vector<std::string> tables_;
  std::map<std::string, uint32_t> partitions_max_;  // by table: the highest one that was found
};

}  // namespace hps
