// A small store with one of everything that the format has, and what must be in it.
//
// make_format_store writes one to be kept, when the format gets a new version. Every hps of this
// format must read it (store_format_test), so what is written here changes with the version only.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "l3_rocksdb/options.h"
#include "tier/durable_tier.h"

namespace hps {

RocksStoreOptions FormatStoreOptions(const std::string& path, OpenMode mode);

// Writes the store: tables of each dtype, one empty, one with keys of every size; updated and
// deleted rows, of which some are merged into a new page file; stream positions; networks; a log
// that no table file has taken yet; and an import that is staged and ready. `path` must not exist.
absl::Status MakeFormatStore(const std::string& path);

// The first thing that is not as it was written, or OK. `has_staged`: the import that was staged
// has been committed.
absl::Status CheckFormatStore(DurableStore& store, bool has_staged);

}  // namespace hps
