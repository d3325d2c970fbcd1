// Level 2 on Redis: one server or a Redis Cluster, as a big cache outside this process.
//
// The rows of a table without an import id are this process's own: names hold the incarnation and a
// random number of each opened table, so that nothing that another process or an earlier run wrote
// is ever read. Those of a table with an import id are shared by all nodes that imported it.
// docs/redis.md describes what is stored, and why no row goes back.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/config.h"
#include "hps/statistics.h"
#include "hps/transfer.h"
#include "tier/foreign_cache.h"
#include "tier/lossy_tier.h"
#include "tier/shared_table.h"

namespace hps {

// Limits of RedisConfig: parts of each table, which are commands of a look-up; bytes of the prefix,
// which every row has in its name.
inline constexpr uint32_t kRedisPartitionsMax = 4096;
inline constexpr size_t kRedisPrefixBytesMax = 64;

struct RedisTier {
  std::unique_ptr<LossyTier> tier;
  std::function<RemoteLevelStatistics()> statistics;
  // Opens a table that has an import id. The table in level 3 must not change from `start` until
  // this one gets the changes. `writes_changes`: this node writes every change into Redis; else
  // only those that SharedTable::WriteChange is given. Errors: as LossyTier::OpenTable.
  std::function<absl::StatusOr<OpenedSharedTable>(const SharedTableStart& start,
                                                  bool writes_changes)>
      open_shared{};
};

// Connects when it is used first, and again whenever it has to: a server that can't be reached is a
// level without rows. Tables may outlive the tier. Errors: INVALID_ARGUMENT (an address), and
// UNIMPLEMENTED in a build without Redis.
absl::StatusOr<RedisTier> MakeRedisTier(const RedisConfig& config);

// Reads the files of the settings tls_*, as every new connection does. Errors: FAILED_PRECONDITION,
// with the setting and the file.
absl::Status CheckRedisTlsFiles(const RedisConfig& config);

struct HugectrRedisSource {
  std::string url;  // redis://host:port, or rediss://host:port for TLS
  uint32_t partitions = kHugectrPartitionsDefault;  // of each table; HugeCTR HPS's num_partitions
  // Only user, password_file and tls_* are used; `tls` or the URL chooses TLS.
  RedisConfig connection{};
  // A server that fails in the middle of a table is asked again for this long.
  std::chrono::nanoseconds retry_for = std::chrono::seconds(30);
};

// The tables of HugeCTR HPS in Redis, for an import. Finds out whether it is a cluster. Errors:
// INVALID_ARGUMENT (the URL, or no tables), FAILED_PRECONDITION (the files of tls_*), those of the
// network and the server; UNIMPLEMENTED in a build without Redis.
absl::StatusOr<std::unique_ptr<ForeignCache>> OpenHugectrRedis(const HugectrRedisSource& source);

}  // namespace hps
