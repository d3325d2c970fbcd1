// Finds damage in a store that nobody has open for writing, and makes it harmless.
//
// Reads every byte: CURRENT; every record of the MANIFEST and of the write-ahead logs by its CRC;
// every table file against the checksum that the MANIFEST has of it; the catalog; every row against
// its own checksum. Works as far as it can when the store can't be opened.
#pragma once

#include "absl/status/statusor.h"
#include "hps/transfer.h"
#include "l3_rocksdb/options.h"

namespace hps {

// Damage is in the report, not an error: bytes that are wrong, files that are missing. Without
// `repair`, not a byte of the store changes.
//
// A read that fails for another reason (EIO, no descriptor or memory left) says nothing of the
// bytes: it ends the call with its status, and nothing is marked lost. Rows on a disk that can't
// read them any more are repaired after their files have been copied to a disk that can.
//
// With `repair`, each damaged table is written anew as an incarnation of its own, with every row
// that a lookup would answer, versions and positions included. Keys whose rows are lost are listed
// (as far as the table's key list and the damage allow) and marked: they answer kLost. That goes
// for a key, too, of which only an older row can be read: the damage may have held a newer one, and
// an older row is never answered for it. Where it can't be told which keys were lost, the whole
// range is recorded, and a key in it that is not found answers kLost. Costs a copy of each damaged
// table, in time and, for the moment, in space. Errors: NOT_FOUND (no store), UNAVAILABLE (a writer
// has it; a read failed), FAILED_PRECONDITION (newer format), RESOURCE_EXHAUSTED (no space to
// repair; no memory); DATA_LOSS (repair only: the store can't be opened, the message says why).
absl::StatusOr<VerifyReport> VerifyRocksStore(const RocksStoreOptions& options, bool repair,
                                              const ProgressFunction& progress);

}  // namespace hps
