// Finds and repairs damage in a store that no process has open for writing.
//
// Reads every byte: CURRENT, every record of the MANIFEST and of the WAL (by its CRC), every table
// file (by its checksum in the MANIFEST), the catalog, and every row (by its own checksum). If the
// store cannot be opened, checks as much as possible.
#pragma once

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "l3_rocksdb/options.h"

namespace hps {

// Reports damage (wrong bytes, missing files) in the result, not as an error. Without `repair`,
// changes no byte of the store.
//
// A read that fails for another reason (EIO, no free descriptor or memory) does not mean damage. It
// ends the call with its status, and no row is marked lost. If a disk can no longer read its files,
// copy them to another disk before the repair.
//
// With `repair`, rewrites each damaged table as a new incarnation that holds every row that a
// lookup would answer, with versions and positions. Keys of lost rows are marked and answer kLost,
// as far as the key list and the damage allow to name them. A key of which only an older row is
// readable is lost too: the damage may have held a newer row. Where the lost keys are unknown, the
// repair records the range; a key in it without a row answers kLost. A damaged network is removed:
// its model then answers lookups only, until it is imported again. Costs a copy of each damaged
// table, in time and, until the repair ends, in space. Errors: NOT_FOUND (no store), UNAVAILABLE (a
// writer holds it; a read failed), FAILED_PRECONDITION (newer format), RESOURCE_EXHAUSTED (no space
// for the repair; no memory), DATA_LOSS (repair only: the store cannot be opened; the message says
// why).
absl::StatusOr<VerifyReport> VerifyRocksStore(const RocksStoreOptions& options, bool repair,
                                              const ProgressFunction& progress);

}  // namespace hps
