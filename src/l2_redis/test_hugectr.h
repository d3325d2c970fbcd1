// Tables as HugeCTR HPS lays them out in Redis, for tests.
#pragma once

#include <cstddef>
#include <string>

#include "base/bytes.h"
#include "hps/types.h"
#include "l2_redis/hugectr_names.h"
#include "l2_redis/slots.h"
#include "l2_redis/test_redis.h"

namespace hps {

inline std::string HugectrTestKey(Key key) {
  std::string bytes(sizeof(Key), '\0');
  StoreLittleEndian(bytes.data(), key);
  return bytes;
}

// Four floats: the key, and zeros.
inline std::string HugectrTestRow(Key key) {
  std::string row(4 * sizeof(float), '\0');
  StoreLittleEndian(row.data(), static_cast<float>(key));
  return row;
}

// The server that has the hash; those of a cluster have equal parts of the slots.
inline size_t HugectrTestOwner(const TestRedis& redis, const std::string& hash) {
  return RedisSlotOf(hash) * redis.addresses().size() / kRedisSlotCount;
}

}  // namespace hps
