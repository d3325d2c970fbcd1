// A small store with one of everything that the format has, and what must be in it.
//
// make_format_store writes one to be kept, when the format gets a new version; every later hps must
// read it (store_format_test). So what is written here may only change with the format's version.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "l3_rocksdb/options.h"
#include "tier/durable_tier.h"

namespace hps {

RocksStoreOptions FormatStoreOptions(const std::string& path, OpenMode mode);

// Writes the store: tables of each dtype, one empty, one with keys of every size, in page files and
// in RocksDB; updated and deleted rows, of which some are merged into a new page file; lost rows;
// stream positions; networks; a log that no table file has taken yet; and an import that is staged
// and ready. `path` must not exist.
absl::Status MakeFormatStore(const std::string& path);

// The first thing that is not as it was written, or OK. `has_staged`: the import that was staged
// has been committed. `has_networks`: it is of format 2.
absl::Status CheckFormatStore(DurableStore& store, bool has_staged, bool has_networks);

}  // namespace hps
