// Opening a small store the way the fault tests do: small buffers, so that flushes and compactions
// happen within a second.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "l3_rocksdb/options.h"
#include "l3_rocksdb/rocks_store.h"
#include "l3_rocksdb/test_store.h"
#include "tier/durable_tier.h"

namespace hps {

inline RocksStoreOptions TestStoreOptions(const std::string& path) {
  RocksStoreOptions options = TestOptions(path);
  options.config.cache_bytes = 1 << 20;
  options.config.write_buffer_bytes = 256 << 10;
  return options;
}

}  // namespace hps
