// Tables of HugeCTR HPS in Redis, read as the source of an import: one server or a cluster, which
// it finds out. Reads only, by SCAN and HSCAN in pieces, never by KEYS or HGETALL.
//
// A cursor of SCAN or HSCAN means something only to one run of one server. So if the server of a
// part ends, restarts or gives the part's slot to another server, the part is read again from its
// beginning, from the server that has it then. The list of tables is read again in the same way.
//
// A key that HugeCTR would put into another part is an error. Either the key was left there when
// the number of parts was changed, so that its row may be old, or the number given here is wrong.
//
// For one thread.
#pragma once

#include <functional>
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
    uint32_t partition_count = 0;  // of each table
    Duration timeout{};            // of each command
    // A part, or the list of tables, is read again until this long after it failed first.
    Duration retry_for{};
  };

  // Lists the tables of all servers. Errors: UNAVAILABLE (also if a slot of the cluster has no
  // server), DEADLINE_EXCEEDED, PERMISSION_DENIED, UNAUTHENTICATED, DATA_LOSS (no reply of Redis,
  // or a list without an end), INVALID_ARGUMENT (no table, or a hash with HugeCTR's prefix and
  // another name). The first server must answer at once: its address may be wrong.
  static absl::StatusOr<std::unique_ptr<HugectrRedis>> Open(Options options);

  const std::vector<std::string>& tables() const override { return tables_; }
  absl::StatusOr<uint32_t> PartCount(const std::string& table) override;
  absl::Status ReadPart(const std::string& table, uint32_t part, ForeignRecordSink& sink) override;

 private:
  explicit HugectrRedis(Options options) : options_(std::move(options)) {}

  RedisSession& SessionOf(const RedisAddress& address);
  // Calls `attempt` with its number, from 0, until it does not fail or fails for good; see
  // retry_for.
  absl::Status Retry(const std::function<absl::Status(size_t)>& attempt) const;
  // Learns all servers from the one at `from`. After an error nodes_ is as it was.
  absl::Status LearnNodes(const RedisAddress& from);
  absl::Status ListTables();
  absl::Status ListTablesOf(RedisSession& session, std::map<std::string, uint32_t>& partitions);
  absl::Status NoteHashes(const std::vector<Reply>& names,
                          std::map<std::string, uint32_t>& partitions) const;
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
