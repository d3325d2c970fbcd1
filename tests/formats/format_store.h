// A small store with one of everything that the format has, and what must be in it.
//
// make_format_store writes one that is kept for store_format_test when the format gets a new
// version. Do not change what it writes without a new version.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "l3_rocksdb/options.h"
#include "tier/durable_tier.h"

namespace hps {

RocksStoreOptions FormatStoreOptions(const std::string& path, OpenMode mode);

// Writes a store with tables of each dtype, an empty table, keys of every size, updated and deleted
// rows, stream positions, networks, and a staged import that is ready. A merge has put some of the
// changes into a new page file; the log alone has the others. `path` must not exist.
absl::Status MakeFormatStore(const std::string& path);

// The first thing that is not as it was written, or OK. `has_staged`: the import that was staged
// has been committed.
absl::Status CheckFormatStore(DurableStore& store, bool has_staged);

}  // namespace hps
