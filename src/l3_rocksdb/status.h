// Translates RocksDB's statuses to absl's. No other file does.
#pragma once

#include <rocksdb/status.h>

#include <string_view>

#include "absl/status/status.h"

namespace hps {

// `what` names the operation and its object: "writing table 'm/t'".
//
//   no space, quota, memory or       RESOURCE_EXHAUSTED
//   descriptor left, a file's limit  (IsDiskFull where IsNoSpace)
//   no permission, read-only disk    PERMISSION_DENIED
//   corruption                       DATA_LOSS
//   lock held, busy, shutdown,       UNAVAILABLE
//   any other I/O
//   deadline                         DEADLINE_EXCEEDED
//   not found                        NOT_FOUND
//   column family dropped            FAILED_PRECONDITION
//   not supported                    UNIMPLEMENTED
//   invalid argument, merge          INTERNAL: a bug in hps
absl::Status FromRocksStatus(const rocksdb::Status& status, std::string_view what);

// True if the status of a failed read means that the store is damaged: bytes are wrong, or a file
// is missing or invalid. An I/O error does not mean damage: the bytes may be intact once the disk
// answers, or once the process has a descriptor or memory again.
bool IsDamage(const rocksdb::Status& status);

// True if the file or folder does not exist.
inline bool IsGone(const rocksdb::Status& status) {
  return status.IsNotFound() || status.IsPathNotFound();
}

// True if the disk or the owner's quota is full.
bool IsNoSpace(const rocksdb::Status& status);

// FromRocksStatus for reads of a store that has no writer: DATA_LOSS if IsDamage.
absl::Status FromReadStatus(const rocksdb::Status& status, std::string_view what);

}  // namespace hps
