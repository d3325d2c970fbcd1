// Level 2 on Redis: one server or a Redis Cluster, as a big cache outside this process.
//
// The rows of a table without an import id are this process's own: names hold the incarnation and a
// random number of each opened table, so that nothing that another process or an earlier run wrote
// is ever read. Those of a table with an import id are shared by all nodes that imported it.
// docs/redis.md describes what is stored, and why no row goes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hps/config.h"
#include "hps/statistics.h"
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

}  // namespace hps
