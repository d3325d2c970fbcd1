#include "tier/redis_tier.h"

#include <utility>

#include "base/macros.h"
#include "l2_redis/hugectr_redis.h"
#include "l2_redis/redis_client.h"
#include "l2_redis/redis_fetch.h"
#include "l2_redis/redis_table.h"
#include "l2_redis/shared_redis_table.h"

namespace hps {
namespace {

// Of one command of an import: HSCAN of a piece, at a server that may be busy.
constexpr Duration kImportTimeout = std::chrono::seconds(10);

// 64 are enough for 16 masters.
size_t PartitionCount(const RedisConfig& config) {
  constexpr uint32_t kDefault = 64;
  if (!config.cluster) return 1;
  return config.partitions == 0 ? kDefault : config.partitions;
}

uint64_t ExpireAfterMs(const RedisConfig& config) {
  return static_cast<uint64_t>(
      std::chrono::ceil<std::chrono::milliseconds>(config.expire_after).count());
}

Duration WriteTimeout(const RedisConfig& config) {
  return config.write_timeout == Duration::zero() ? 10 * config.timeout : config.write_timeout;
}

absl::StatusOr<OpenedSharedTable> OpenShared(const std::shared_ptr<RedisClient>& client,
                                             const RedisConfig& config,
                                             const SharedTableStart& start, bool writes_changes) {
  HPS_RETURN_IF_ERROR(ValidateTableSpec(start.info.spec));
  HPS_RETURN_IF_ERROR(ValidateImportId(start.info.import_id));
  auto table = std::make_unique<SharedRedisTable>(
      client,
      SharedRedisTable::Options{.key_prefix = config.key_prefix,
                                .partition_count = PartitionCount(config),
                                .expire_after_ms = ExpireAfterMs(config),
                                .writes_changes = writes_changes,
                                .write_timeout = WriteTimeout(config)},
      start);
  SharedTable* const shared = table.get();
  return OpenedSharedTable{.table = std::move(table), .shared = shared};
}

class RedisLossyTier final : public LossyTier {
 public:
  RedisLossyTier(std::shared_ptr<RedisClient> client, RedisConfig config)
      : client_(std::move(client)), config_(std::move(config)) {}

  absl::StatusOr<std::unique_ptr<LossyTable>> OpenTable(const TableSpec& spec,
                                                        Incarnation incarnation,
                                                        uint64_t /*bytes_max*/) override {
    HPS_RETURN_IF_ERROR(ValidateTableSpec(spec));
    const RedisTable::Options options = {.key_prefix = config_.key_prefix,
                                         .partition_count = PartitionCount(config_),
                                         .incarnation = incarnation,
                                         .row_bytes = spec.row_bytes(),
                                         .expire_after_ms = ExpireAfterMs(config_),
                                         .write_timeout = WriteTimeout(config_),
                                         .reads_replicas = config_.replica_reads};
    return std::make_unique<RedisTable>(client_, options);
  }

  void Fetch(std::span<TableFetch> fetches, Deadline) override {
    FetchFromRedis(*client_, fetches);
  }

 private:
  const std::shared_ptr<RedisClient> client_;
  const RedisConfig config_;
};

RedisCredentials CredentialsOf(const RedisConfig& config) {
  RedisCredentials credentials = {.user = config.user,
                                  .password_file = config.password_file,
                                  .tls_server_name = config.tls_server_name,
                                  .reads_replicas = config.replica_reads};
  if (config.tls) {
    credentials.tls = TlsFiles{.prefix = "l2.redis.tls_",
                               .ca = config.tls_ca,
                               .certificate = config.tls_certificate,
                               .key = config.tls_key};
  }
  return credentials;
}

}  // namespace

absl::Status CheckRedisTlsFiles(const RedisConfig& config) {
  return NewRedisTls(CredentialsOf(config), "any host").status();
}

absl::StatusOr<std::unique_ptr<ForeignCache>> OpenHugectrRedis(const HugectrRedisSource& source) {
  HPS_ASSIGN_OR_RETURN(const RedisUrl url, ParseRedisUrl(source.url));
  RedisConfig connection = source.connection;
  connection.tls |= url.tls;
  HPS_RETURN_IF_ERROR(CheckRedisTlsFiles(connection));
  return HugectrRedis::Open({.url = source.url,
                             .address = url.address,
                             .credentials = CredentialsOf(connection),
                             .partition_count = source.partitions,
                             .timeout = kImportTimeout,
                             .retry_for = source.retry_for});
}

absl::StatusOr<RedisTier> MakeRedisTier(const RedisConfig& config) {
  RedisClient::Options options = {.cluster = config.cluster,
                                  .credentials = CredentialsOf(config),
                                  .connections_per_node = config.connections_per_node,
                                  .timeout = config.timeout};
  for (const std::string& node : config.nodes) {
    HPS_ASSIGN_OR_RETURN(RedisAddress address, ParseRedisAddress(node));
    options.nodes.push_back(std::move(address));
  }
  auto client = std::make_shared<RedisClient>(std::move(options));
  return RedisTier{.tier = std::make_unique<RedisLossyTier>(client, config),
                   .statistics = [client] { return client->Statistics(); },
                   .open_shared =
                       [client, config](const SharedTableStart& start, bool writes_changes) {
                         return OpenShared(client, config, start, writes_changes);
                       }};
}

}  // namespace hps
