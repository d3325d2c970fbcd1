// The names in HugeCTR's ps.json: of settings that have no equivalent in hps, and of the values of
// settings that have one.
#pragma once

#include <string_view>
#include <utility>

namespace hps::hugectr {

// A setting without an equivalent, whose loss has an effect.
struct Loss {
  const char* name;
  const char* text;                // how hps differs, and what the user can do
  const char* harmless = "false";  // with this value, or with 0 or "", nothing is lost
};

inline constexpr char kNetwork[] =
    "HugeCTR's dense networks are not read: export yours as ONNX and import it with the tables "
    "(docs/ctr_models.md)";
inline constexpr char kCacheType[] =
    "level 1 has one type, which keeps the hot rows and takes changes; to hold all rows, set "
    "l1_share = 1.0 and [l1] preload = 1.0";
inline constexpr char kRefresh[] =
    "level 1 takes the changes of rows every [update] refresh_interval; `hps refresh` reads all of "
    "its rows again";
inline constexpr char kFilters[] =
    "regular expressions of topics become [update] tables, patterns of MODEL/TABLE; its default is "
    "all tables, which '^hps_.+$' and '.+' mean, too";
inline constexpr char kRedisEvicts[] = "Redis evicts rows by its own maxmemory-policy";
inline constexpr Loss kModelLosses[] = {
    {"dense_file", kNetwork},
    {"network_file", kNetwork},
    {"max_batch_size", "larger requests are answered, too; [server] limits keys and bytes"},
    {"embedding_cache_type", kCacheType, "dynamic"},
    {"use_static_table", kCacheType},
    {"refresh_delay", kRefresh},
    {"refresh_interval", kRefresh},
    {"fp8_quant", "rows keep their type; `hps import --dtype float16` halves their size"},
    {"mixed_precision", "[server] dense_math is the number type of networks on a GPU"},
};
inline constexpr Loss kLevel2Losses[] = {
    {"overflow_margin",
     "it counts rows of a partition: set [l2] bytes_max, the budget of all tables in memory, or "
     "maxmemory of Redis"},
    {"overflow_policy", kRedisEvicts},             // in memory it is converted
    {"overflow_resolution_target", kRedisEvicts},  // as above
    {"cache_missed_embeddings", "missed rows are always promoted to level 2", "true"},
    {"update_filters", kFilters},
};
inline constexpr Loss kLevel3Losses[] = {
    {"path",
     "hps has its own store: import the tables, or what this database has by `hps import --format "
     "hugectr-rocksdb`"},
    {"read_only",
     "rows are changed by [update] brokers and [server.security] updates: set neither"},
    {"update_filters", kFilters},
};

// Of all sections. Those of Redis, TLS and Kafka are converted where these are in use.
inline constexpr char kNotNeeded[] =
    "maxnum_catfeature_query_per_table_per_sample maxnum_des_feature_per_sample "
    "num_of_worker_buffer_in_pool num_of_refresher_buffer_in_pool thread_pool_size "
    "use_hctr_cache_implementation use_context_stream fuse_embedding_table enable_pagelock "
    "label_dim slot_num num_partitions max_batch_size max_get_batch_size max_set_batch_size "
    "allocation_rate refresh_time_after_fetch initialize_after_startup shared_memory_size "
    "shared_memory_name shared_memory_auto_remove address user_name password num_node_connections "
    "enable_tls tls_ca_certificate tls_client_certificate tls_client_key "
    "tls_server_name_identification num_threads metadata_refresh_interval_ms receive_buffer_size "
    "poll_timeout_ms failure_backoff_ms max_commit_interval";

// HugeCTR's names, separated by blanks, of a value. The first value of a list is HugeCTR's default,
// which unknown names stand for, too.
using Names = std::pair<std::string_view, std::string_view>;

inline constexpr Names kLevel2Types[] = {
    {"disabled disable none", "none"},
    {"hash_map hashmap hash map parallel_hash_map parallel_hashmap parallel_hash parallel_map",
     "memory"},
    {"multi_process_hash_map multi_process_hashmap multi_process_hash multi_process_map", "shared"},
    {"redis_cluster redis", "redis"}};
inline constexpr Names kLevel3Types[] = {{"disabled disable none", "none"},
                                         {"rocks_db rocksdb rocks", "rocksdb"}};
inline constexpr Names kUpdateTypes[] = {{"null none", "none"},
                                         {"kafka_message_queue kafka_mq kafka", "kafka"}};
inline constexpr Names kEvictions[] = {{"evict_random random", "random"},
                                       {"evict_least_used least_used", "least_used"},
                                       {"evict_oldest oldest", "oldest"}};

}  // namespace hps::hugectr
