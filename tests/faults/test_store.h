// Opening a small store the way the fault tests do: small buffers, so that flushes and compactions
// happen within a second.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "l3_rocksdb/options.h"
#include "l3_rocksdb/rocks_store.h"
#include "tier/durable_tier.h"

namespace hps {

inline RocksStoreOptions TestStoreOptions(const std::string& path) {
  RocksStoreOptions options;
  options.config.path = path;
  options.config.cache_bytes = 1 << 20;
  options.config.write_buffer_bytes = 256 << 10;
  options.config.sync = SyncMode::kNever;
  options.config.free_bytes_min = 0;
  options.mode = OpenMode::kCreate;
  return options;
}

}  // namespace hps
