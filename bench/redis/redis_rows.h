// What the parts of `hps bench redis` have in common: the sizes, the keys and rows, and how hps
// reaches the servers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hps/redis_config.h"
#include "hps/types.h"

namespace hps::bench {

struct RedisSizes {
  size_t rows = 0;
  size_t keys_per_round = 0;
  size_t rounds = 0;
};

inline RedisSizes RedisSizesFor(bool quick) {
  if (quick) return {.rows = 4096, .keys_per_round = 16'384, .rounds = 1};
  return {.rows = 100'000, .keys_per_round = 131'072, .rounds = 5};
}

// Rows are stamped with this table.
inline constexpr uint64_t kRedisTable = 1;
inline constexpr size_t kRedisInsertBatch = 4096;

// Keys that are no small numbers, as real ones are hashes.
inline Key RedisKeyOf(size_t row) { return static_cast<Key>(row * 0x9e3779b97f4a7c15); }

// Nothing is bypassed because the machine is busy.
inline RedisConfig RedisConfigFor(const std::vector<std::string>& nodes, bool cluster) {
  return {.nodes = nodes, .cluster = cluster, .timeout = std::chrono::seconds(30)};
}

}  // namespace hps::bench
