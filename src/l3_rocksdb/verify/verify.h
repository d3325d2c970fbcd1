// Finds damage in a store that no process has open for writing.
//
// Reads every byte: page files (by the checksum of each page), CURRENT, every record of the
// MANIFEST and of the WAL (by its CRC), every table file (by its checksum in the MANIFEST), the
// catalog, and every changed row (by its own checksum). If the store cannot be opened, checks as
// much as possible.
#pragma once

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "l3_rocksdb/options.h"

namespace hps {

// Reports damage (wrong bytes, missing files) in the result, not as an error. Without `repair`,
// changes no byte of the store.
//
// A read that fails for another reason (EIO, no free descriptor or memory) does not mean damage. It
// ends the call with its status. If a disk can no longer read its files, copy them to another disk.
//
// With `repair`, mends what can be mended without the rows: removes damaged networks, whose models
// then answer lookups only until they are imported again, and writes `hps.manifest` again. Damaged
// rows need no repair: lookups answer kLost for them, and a new import of the table replaces them.
// Errors: NOT_FOUND (no store), UNAVAILABLE (a writer holds it; a read failed), FAILED_PRECONDITION
// (another format), RESOURCE_EXHAUSTED (no memory, no space), DATA_LOSS (repair only: the store
// cannot be opened; the message says why).
absl::StatusOr<VerifyReport> VerifyRocksStore(const RocksStoreOptions& options, bool repair,
                                              const ProgressFunction& progress);

}  // namespace hps
